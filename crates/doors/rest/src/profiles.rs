//! The presets that sessions are made from.

use axum::Json;
use axum::extract::State;
use box_core::Profile;

use crate::app::App;
use crate::extract::Who;
use door_http::failure::Failure;

/// The profiles that you can ask for, with what they lock
///
/// What is in `locked` cannot be changed by a request: the profile's value counts, whatever is asked. A token that is bound to a
/// profile sees that one only.
#[utoipa::path(get, path = "/v1/profiles", tag = "service",
    responses((status = 200, description = "The profiles, the built-in ones first", body = Vec<Profile>)))]
pub(crate) async fn profiles(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<Profile>>, Failure> {
    Ok(Json(app.service().profiles(&caller)?))
}
