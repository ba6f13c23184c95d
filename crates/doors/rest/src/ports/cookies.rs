//! Cookies of services that are served below a path of ours.
//!
//! A browser keeps cookies by host, for all ports and paths unless told otherwise. So what a service sets would be sent to every
//! other one, and what other programs of that host have set would be sent to every box. Therefore a cookie of a service gets a
//! name that begins with [`PREFIX`] and the path of its port on the way out, and only such ones, without it, come in.

use http::{HeaderMap, HeaderValue, header};

/// What the name of every cookie of a service begins with, out here.
const PREFIX: &str = "box.";

/// Leaves the service its own cookies only.
pub(super) fn to_service(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    let texts = all.iter().filter_map(|value| str::from_utf8(value.as_bytes()).ok());
    let own = texts.flat_map(|text| text.split(';')).filter_map(|cookie| cookie.trim().strip_prefix(PREFIX));
    let own = own.collect::<Vec<_>>().join("; ");
    if !own.is_empty()
        && let Ok(value) = HeaderValue::try_from(own)
    {
        headers.insert(header::COOKIE, value);
    }
}

/// Binds what a service sets to its own path.
pub(super) fn from_service(headers: &mut HeaderMap, path: &str) {
    let all: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for value in all {
        let bound =
            str::from_utf8(value.as_bytes()).ok().and_then(|text| HeaderValue::try_from(bound(text, path)).ok());
        if let Some(bound) = bound {
            headers.append(header::SET_COOKIE, bound);
        }
    }
}

fn bound(cookie: &str, path: &str) -> String {
    let is_about_place = |attribute: &&str| {
        let name = attribute.split('=').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("path") || name.eq_ignore_ascii_case("domain")
    };
    let mut parts = cookie.split(';');
    let pair = parts.next().unwrap_or_default().trim();
    let kept: Vec<&str> = std::iter::once(pair).chain(parts.filter(|part| !is_about_place(part))).collect();
    // A path may hold what separates attributes.
    let path = path.replace(';', "%3B");
    format!("{PREFIX}{}; Path={path}", kept.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_bound_to_the_path_of_its_port() {
        let table = [
            ("a=b", "box.a=b; Path=/p"),
            ("a=b; Path=/; Domain=example.com; HttpOnly; Max-Age=5", "box.a=b; HttpOnly; Max-Age=5; Path=/p"),
            ("__Host-x=1;path=/;SECURE", "box.__Host-x=1;SECURE; Path=/p"),
            ("a=b; DOMAIN = x; pAtH=/v1", "box.a=b; Path=/p"),
        ];
        for (given, expected) in table {
            assert_eq!(bound(given, "/p"), expected);
        }
        assert_eq!(bound("a=b", "/v1;domain=x"), "box.a=b; Path=/v1%3Bdomain=x");
    }

    #[test]
    fn a_service_gets_its_own_cookies_and_no_other_programs() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("session=secret; box.a=b; other=1"));
        headers.append(header::COOKIE, HeaderValue::from_static("box.c=d;box.e=f=g"));
        to_service(&mut headers);
        assert_eq!(headers[header::COOKIE], "a=b; c=d; e=f=g");
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("session=secret"));
        to_service(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn every_cookie_of_an_answer_is_bound() {
        let mut headers = HeaderMap::new();
        headers.append(header::SET_COOKIE, HeaderValue::from_static("a=1; Path=/"));
        headers.append(header::SET_COOKIE, HeaderValue::from_static("b=2"));
        from_service(&mut headers, "/p");
        let all: Vec<_> = headers.get_all(header::SET_COOKIE).iter().collect();
        assert_eq!(all, ["box.a=1; Path=/p", "box.b=2; Path=/p"]);
    }
}
