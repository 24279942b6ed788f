//! Which pages may talk to the server.
//!
//! A browser sends requests of any page to any address. Three checks keep other pages out: the host has to be one of this server (or a
//! page whose name is pointed at this server's address could read everything), the origin has to be the host, and requests of the API carry
//! a token in a header, which only a page of this origin can read and send.

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::{HeaderName, ORIGIN};

use frond_http::{Call, Refusal};

/// Checks the host and the origin of a request.
///
/// # Errors
/// The refusal of a request that another page makes.
pub fn check(call: &Call, names: &[String]) -> Result<(), Refusal> {
    let refused = |text| Err(Refusal::new(StatusCode::FORBIDDEN, text));
    let Some(host) = call.host() else {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "the request names no host",
        ));
    };
    if !is_own(name_of(host), names) {
        return refused(
            "this server does not know the host that the request names; add it to the setting net.http.hosts",
        );
    }
    let site = call.header(&HeaderName::from_static("sec-fetch-site"));
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return refused("the request comes from another page");
    }
    match call.header(&ORIGIN) {
        Some(origin) if origin.split_once("://").map(|(_, rest)| rest) != Some(host) => {
            refused("the request comes from another page")
        }
        _ => Ok(()),
    }
}

/// The host without the port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(host, |(ip, _)| ip),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether a name is one of this server. An address always is: no attacker can make it resolve to this server.
fn is_own(name: &str, names: &[String]) -> bool {
    let name = name.to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok() || name == "localhost" || names.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_own() {
        let names = ["db1.example".to_owned()];
        for (host, is_known) in [
            ("127.0.0.1:28017", true),
            ("127.0.0.1", true),
            ("[::1]:28017", true),
            ("[::1]", true),
            ("localhost:1", true),
            ("LOCALHOST", true),
            ("db1.example:1", true),
            ("DB1.example", true),
            ("evil.example:28017", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example:80", false),
            ("[evil.example]:1", false),
            ("", false),
        ] {
            assert_eq!(is_own(name_of(host), &names), is_known, "{host}");
        }
    }
}
