//! Every route of this door, in one list, with who may use it; and the document that describes them.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get};
use box_core::Scope;
use utoipa::OpenApi as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Content, OpenApi, Ref, RefOr, ResponseBuilder, Schema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::{
    code, execs, files, input, managed, mcp, output, pages, ports, processes, profiles, service, sessions,
    skill_archives, skills, snapshots, streams, templates, tools, volumes,
};
use door_http::failure::ErrorBody;
use door_http::{ServerState, auth};

/// How the document calls our tokens.
const SCHEME: &str = "token";

/// What anybody may ask who can reach us.
fn open_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(pages::front))
        .routes(routes!(pages::healthz))
        .routes(routes!(pages::readyz))
        .routes(routes!(pages::document))
}

/// What needs the scope exec.
fn exec_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(service::health))
        .routes(routes!(service::status))
        .routes(routes!(service::backend))
        .routes(routes!(service::backends))
        .routes(routes!(service::errors))
        .routes(routes!(profiles::profiles))
        .routes(routes!(sessions::list, sessions::create_unnamed))
        .routes(routes!(sessions::create, sessions::get, sessions::patch, sessions::delete))
        .routes(routes!(sessions::pause))
        .routes(routes!(sessions::resume))
        .routes(routes!(sessions::stats))
        .routes(routes!(volumes::list, volumes::create))
        .routes(routes!(volumes::get, volumes::delete))
        .routes(routes!(snapshots::create, snapshots::of_session))
        .routes(routes!(snapshots::fork))
        .routes(routes!(snapshots::list))
        .routes(routes!(snapshots::get, snapshots::delete))
        .routes(routes!(templates::list))
        .routes(routes!(templates::get, templates::delete))
        .routes(routes!(execs::exec))
        .routes(routes!(streams::exec_by_socket))
        .routes(routes!(execs::list))
        .routes(routes!(execs::get))
        .routes(routes!(execs::result))
        .routes(routes!(execs::cancel))
        .routes(routes!(code::run))
        .routes(routes!(code::list, code::create))
        .routes(routes!(code::delete))
        .routes(routes!(code::restart))
        .routes(routes!(input::signal_to_exec))
        .routes(routes!(input::stdin_of_exec))
        .routes(routes!(input::resize))
        .routes(routes!(output::of_exec))
        .routes(routes!(streams::events_of_exec))
        .routes(routes!(streams::attach_to_exec))
        .routes(routes!(processes::list, processes::start))
        .routes(routes!(processes::get, processes::stop))
        .routes(routes!(input::signal_to_process))
        .routes(routes!(input::stdin_of_process))
        .routes(routes!(output::of_process))
        .routes(routes!(streams::events_of_process))
        .routes(routes!(streams::attach_to_process))
        .routes(routes!(managed::start, managed::get, managed::stop))
        .routes(routes!(managed::start_named, managed::get_named, managed::stop_named))
}

/// What the document says of services in boxes.
#[derive(utoipa::OpenApi)]
#[openapi(paths(ports::reach, ports::connect))]
struct Ports;

/// What leads to services in boxes, and needs the scope exec. A service has whatever methods it likes.
fn port_routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Ports::openapi())
        .route("/v1/sessions/{session_id}/ports/{port}", any(ports::reach))
        .route("/v1/sessions/{session_id}/ports/{port}/", any(ports::reach))
        .route("/v1/sessions/{session_id}/ports/{port}/{*path}", any(ports::reach))
        .route("/v1/sessions/{session_id}/tcp/{port}", get(ports::connect))
}

/// What needs the scope files.
fn file_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(files::download, files::upload, files::remove))
        .routes(routes!(files::stat))
        .routes(routes!(files::list))
        .routes(routes!(files::make_directory))
        .routes(routes!(files::rename))
        .routes(routes!(files::watch))
}

/// What needs the scope skills.
fn skill_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(skills::list, skills::create))
        .routes(routes!(skill_archives::preview))
        .routes(routes!(skill_archives::install))
        .routes(routes!(skill_archives::fetch))
        .routes(routes!(skills::get, skills::update, skills::delete))
        .routes(routes!(skills::files))
        .routes(routes!(skills::read_file, skills::write_file))
}

/// What is read of MCP servers, and needs the scope exec.
fn mcp_read_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(mcp::list)).routes(routes!(mcp::get)).routes(routes!(mcp::logs))
}

/// What changes MCP servers, and needs the scope mcp.
fn mcp_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(mcp::put, mcp::delete))
        .routes(routes!(mcp::restart))
        .routes(routes!(mcp::approve))
        .routes(routes!(mcp::enable))
        .routes(routes!(mcp::disable))
        .routes(routes!(mcp::test_named))
        .routes(routes!(mcp::test))
        .routes(routes!(mcp::import))
}

/// What needs one of the scopes of [`TOOL_SCOPES`]; which one depends on the tool.
fn tool_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(tools::list)).routes(routes!(tools::run))
}

/// The scopes that some tool is content with.
const TOOL_SCOPES: &[Scope] = &[Scope::Exec, Scope::Files];

/// What needs the scope admin.
fn admin_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(service::metrics))
}

/// All routes of this door.
pub(crate) fn routes(app: &App) -> Router {
    let state: &ServerState = app;
    let guarded = |scope| from_fn_with_state((state.clone(), scope), auth::admit);
    let open: Router<App> = open_routes().into();
    let exec: Router<App> = exec_routes().route_layer(guarded(Scope::Exec)).into();
    let ports: Router<App> = port_routes().route_layer(guarded(Scope::Exec)).into();
    let files: Router<App> = file_routes().route_layer(guarded(Scope::Files)).into();
    let skills: Router<App> = skill_routes().route_layer(guarded(Scope::Skills)).into();
    let mcp_read: Router<App> = mcp_read_routes().route_layer(guarded(Scope::Exec)).into();
    let mcp: Router<App> = mcp_routes().route_layer(guarded(Scope::Mcp)).into();
    let tools = tool_routes().route_layer(from_fn_with_state((state.clone(), TOOL_SCOPES), auth::admit_any));
    let tools: Router<App> = tools.into();
    let admin: Router<App> = admin_routes().route_layer(guarded(Scope::Admin)).into();
    let all = [exec, ports, files, skills, mcp_read, mcp, tools, admin].into_iter().fold(open, Router::merge);
    all.with_state(app.clone())
}

/// What the document says of itself.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Strongbox",
        description = "Runs commands in boxes that cannot hurt the host. Send your token as `Authorization: Bearer TOKEN`; without \
                       tokens, the machine's own loopback and the Unix socket need none.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ErrorBody)),
    tags(
        (name = "sessions", description = "What you hold: an id, a box, a lifetime"),
        (name = "snapshots", description = "Sessions that were saved, and templates: others begin with their files"),
        (name = "execs", description = "Commands in a session"),
        (name = "code", description = "Code in contexts that keep their names"),
        (name = "processes", description = "Processes that live until they are stopped"),
        (name = "ports", description = "Services in a session's box, reached from outside"),
        (name = "files", description = "Files of a session. Needs the scope files"),
        (name = "volumes", description = "Directories that outlive the sessions that mount them"),
        (name = "skills", description = "Packages that tell an agent how to do something"),
        (name = "mcp", description = "MCP servers: programs in boxes and remote ones. Changing them needs the scope mcp"),
        (name = "managed-process", description = "The same in the form of the old API"),
        (name = "tools", description = "What an agent is given: commands and files in the session of its query"),
        (name = "service", description = "The service as a whole")
    )
)]
struct Head;

/// The OpenAPI document, with what it says of routes of other doors that need a token.
fn document(others: Vec<OpenApi>) -> OpenApi {
    let open = open_routes().into_openapi();
    let mut guarded = exec_routes().into_openapi();
    guarded.merge(port_routes().into_openapi());
    guarded.merge(file_routes().into_openapi());
    guarded.merge(skill_routes().into_openapi());
    guarded.merge(mcp_read_routes().into_openapi());
    guarded.merge(mcp_routes().into_openapi());
    guarded.merge(tool_routes().into_openapi());
    guarded.merge(admin_routes().into_openapi());
    for other in others {
        guarded.merge(other);
    }
    each_operation(&mut guarded, |operation| {
        operation.security = Some(vec![SecurityRequirement::new(SCHEME, [""; 0])]);
    });
    let mut document = Head::openapi();
    document.merge(open);
    document.merge(guarded);
    each_operation(&mut document, |operation| {
        name(operation);
        let error = Content::new(Some(RefOr::<Schema>::Ref(Ref::from_schema_name("ErrorBody"))));
        let response = ResponseBuilder::new().description("What went wrong").content("application/json", error);
        operation.responses.responses.insert("default".to_owned(), response.build().into());
    });
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_with(Components::new).add_security_scheme(SCHEME, scheme);
    document
}

/// Handlers are named within their resource; the document needs names that are unique as a whole.
fn name(operation: &mut Operation) {
    let resource = operation.tags.iter().flatten().next().map(|tag| tag.replace('-', "_"));
    operation.operation_id = resource.zip(operation.operation_id.take()).map(|(tag, verb)| format!("{tag}_{verb}"));
}

fn each_operation(document: &mut OpenApi, mut change: impl FnMut(&mut Operation)) {
    for item in document.paths.paths.values_mut() {
        let all = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        all.into_iter().flatten().for_each(&mut change);
    }
}

/// The OpenAPI document as it is served.
pub(crate) fn document_text(others: Vec<OpenApi>) -> String {
    document(others).to_pretty_json().unwrap_or_default()
}

#[cfg(test)]
mod tests;
