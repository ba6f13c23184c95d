//! The one place of `run` that knows which backend there is.

use box_native::network::Method;
use box_native::{Native, NativeConfig};
use box_wire::Invalid;

use crate::fault::Fault;
use crate::options::EngineOptions;

/// Opens the native backend for this process alone: what it makes goes when it closes, or when the process dies.
pub(crate) async fn open(options: &EngineOptions) -> Result<Native, Fault> {
    let state_dir = match &options.state_dir {
        Some(typed) => std::path::absolute(typed)
            .map_err(|error| Fault::new(format!("--state-dir {}: {error}", typed.display())))?,
        None => box_host::default_state_dir(),
    };
    let network_method = options.network_method.as_deref().map(method).transpose()?;
    Ok(Native::open(NativeConfig { network_method, ..NativeConfig::ephemeral(state_dir) }).await?)
}

fn method(text: &str) -> Result<Method, Fault> {
    let known = [Method::Pasta, Method::Slirp4netns, Method::Veth];
    let found = known.into_iter().find(|method| method.name() == text);
    found.ok_or_else(|| Invalid::new("network-method", text, known.map(Method::name).join(", ")).into())
}
