//! Images by name: what a name may be, whom it is allowed to, and what every place that keeps images can do.

mod name;
mod policy;
mod reference;
mod store;

pub use name::ImageName;
pub use policy::{ImagePolicy, PATTERN_BYTES_MAX, check_pattern};
pub use reference::Reference;
pub use store::{ImageInfo, ImageStore, Progress, PullPolicy, PullStep};
