//! `authenticationRestrictions` of users and roles: the addresses from which, and to which, a user may be logged in.

use std::net::IpAddr;

use frond_bson::{ArrayBuf, Doc, Value};
use frond_error::{Error, ErrorCode, Result};

/// A range of addresses, in CIDR notation or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    prefix: u32,
}

impl Range {
    /// Reads `10.0.0.0/8`, `::1` and the like.
    ///
    /// # Errors
    /// `BadValue` (2).
    pub fn parse(text: &str) -> Result<Range> {
        let wrong = |why: &str| Error::bad_value(format!("{why}: '{text}'"));
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| wrong("Invalid IP address in CIDR string"))?;
        let longest = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let prefix = match prefix {
            None => longest,
            // `parse` would take a plus sign.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= longest)
                .ok_or_else(|| wrong("Invalid length in CIDR string"))?,
            Some(_) => return Err(wrong("Non-numeric length in CIDR string")),
        };
        Ok(Range { address, prefix })
    }

    /// Whether an address is in the range. An IPv4 address that a socket for both families shows as an IPv6 address is
    /// compared as an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let differs = base.to_bits() ^ address.to_bits();
                self.prefix == 0 || differs >> (32 - self.prefix) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let differs = base.to_bits() ^ address.to_bits();
                self.prefix == 0 || differs >> (128 - self.prefix) == 0
            }
            // Such a range may name mapped addresses itself.
            (IpAddr::V6(base), IpAddr::V4(address)) => {
                let differs = base.to_bits() ^ address.to_ipv6_mapped().to_bits();
                self.prefix == 0 || differs >> (128 - self.prefix) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        }
    }
}

/// The addresses of a connection. An end that has no IP address, such as a Unix socket, meets no restriction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The address of the client.
    pub client: Option<IpAddr>,
    /// The address of the server that the client is connected to.
    pub server: Option<IpAddr>,
}

/// One element of the array: it is met if each of its fields has a range with the address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alternative {
    client_source: Option<Vec<Range>>,
    server_address: Option<Vec<Range>>,
}

/// The `authenticationRestrictions` of one user or one role. They are met if one of their elements is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restrictions {
    alternatives: Vec<Alternative>,
}

impl Restrictions {
    /// Reads the array.
    ///
    /// # Errors
    /// MongoDB's for fields that are wrong: `BadValue` (2), `TypeMismatch` (14), `IDLUnknownField` (40415) and
    /// `IDLDuplicateField` (40413).
    pub fn parse(array: &Doc) -> Result<Restrictions> {
        let mut alternatives = Vec::new();
        for (at, value) in array.iter() {
            let Value::Document(given) = value else {
                return Err(wrong_type(
                    &format!("authenticationRestrictions.{at}"),
                    &value,
                    "object",
                ));
            };
            alternatives.push(Alternative::parse(given)?);
        }
        Ok(Restrictions { alternatives })
    }

    /// The array that describes them, with a length in each range.
    pub fn to_array(&self) -> ArrayBuf {
        let mut out = ArrayBuf::new();
        for one in &self.alternatives {
            let fields = [
                ("clientSource", &one.client_source),
                ("serverAddress", &one.server_address),
            ];
            out.push_doc(|doc| {
                for (field, ranges) in fields {
                    let Some(ranges) = ranges else {
                        continue;
                    };
                    doc.push_array(field, |list| {
                        for range in ranges {
                            list.push(&*format!("{}/{}", range.address, range.prefix));
                        }
                    });
                }
            });
        }
        out
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.alternatives.is_empty()
    }

    /// Whether a connection between these addresses meets them.
    pub fn allow(&self, ends: &Ends) -> bool {
        self.is_empty() || self.alternatives.iter().any(|one| one.allows(ends))
    }
}

impl Alternative {
    fn parse(given: &Doc) -> Result<Alternative> {
        const FIELDS: [&str; 2] = ["clientSource", "serverAddress"];
        for (at, (name, _)) in given.iter().enumerate() {
            let problem = if !FIELDS.contains(&name) {
                (ErrorCode::IDLUnknownField, "an unknown field.")
            } else if given.iter().take(at).any(|(other, _)| other == name) {
                (ErrorCode::IDLDuplicateField, "a duplicate field")
            } else {
                continue;
            };
            return Err(Error::new(
                problem.0,
                format!("BSON field 'address restriction.{name}' is {}", problem.1),
            ));
        }
        let alternative = Alternative {
            client_source: ranges(given, "clientSource")?,
            server_address: ranges(given, "serverAddress")?,
        };
        if alternative.client_source.is_none() && alternative.server_address.is_none() {
            return Err(Error::bad_value(
                "At least one of 'clientSource' and/or 'serverAddress' must be set",
            ));
        }
        Ok(alternative)
    }

    fn allows(&self, ends: &Ends) -> bool {
        let is_met = |ranges: &Option<Vec<Range>>, address: Option<IpAddr>| match ranges {
            None => true,
            Some(ranges) => {
                address.is_some_and(|address| ranges.iter().any(|range| range.contains(address)))
            }
        };
        is_met(&self.client_source, ends.client) && is_met(&self.server_address, ends.server)
    }
}

fn ranges(given: &Doc, field: &str) -> Result<Option<Vec<Range>>> {
    let array = match given.get(field) {
        None => return Ok(None),
        Some(Value::Array(array)) => array,
        Some(other) => return Err(wrong_type(field, &other, "array")),
    };
    let parsed = array.iter().map(|(at, value)| match value {
        Value::String(text) => Range::parse(text),
        other => Err(wrong_type(&format!("{field}.{at}"), &other, "string")),
    });
    parsed.collect::<Result<_>>().map(Some)
}

fn wrong_type(field: &str, value: &Value<'_>, expected: &str) -> Error {
    Error::new(
        ErrorCode::TypeMismatch,
        format!(
            "BSON field 'address restriction.{field}' is the wrong type '{}', expected type '{expected}'",
            value.type_name()
        ),
    )
}

/// The array as it is stored: with these fields only, in their order.
///
/// # Errors
/// As [`Restrictions::parse`].
pub fn normalized(array: &Doc) -> Result<ArrayBuf> {
    Restrictions::parse(array)?;
    let mut out = ArrayBuf::new();
    for value in array.values() {
        let Value::Document(given) = value else {
            continue;
        };
        out.push_doc(|one| {
            for field in ["clientSource", "serverAddress"] {
                if let Some(ranges) = given.get(field) {
                    one.push_value(field, &ranges);
                }
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{array, doc};

    use super::*;

    fn ends(client: &str, server: &str) -> Ends {
        Ends {
            client: client.parse().ok(),
            server: server.parse().ok(),
        }
    }

    #[test]
    fn ranges_contain_addresses() {
        for (range, address, contained) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.1.2.3/31", "10.1.2.2", true),
            ("0.0.0.0/0", "200.1.2.3", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("::1", "::1", true),
            ("2001:db8::/32", "2001:db8:1::", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("::ffff:127.0.0.1", "127.0.0.1", true),
            ("::ffff:127.0.0.0/104", "127.9.9.9", true),
        ] {
            let found = Range::parse(range)
                .unwrap()
                .contains(address.parse().unwrap());
            assert_eq!(found, contained, "{range} {address}");
        }
        for wrong in [
            "",
            "x",
            "10.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "::/129",
            "10.0.0.0/8/8",
            "10.0.0.0/99999999999",
            "localhost",
        ] {
            assert_eq!(
                Range::parse(wrong).unwrap_err().code(),
                ErrorCode::BadValue,
                "{wrong}"
            );
        }
    }

    #[test]
    fn one_element_must_be_met_with_all_of_its_fields() {
        let restrictions = Restrictions::parse(
            &array![
                {"clientSource": ["10.0.0.0/8", "::1"], "serverAddress": ["10.0.0.1"]},
                {"clientSource": ["192.168.0.7"]},
                {"serverAddress": ["127.0.0.1"]}
            ]
            .into_docbuf(),
        )
        .unwrap();
        for (client, server, allowed) in [
            ("10.1.1.1", "10.0.0.1", true),
            ("::1", "10.0.0.1", true),
            ("10.1.1.1", "10.0.0.2", false),
            ("192.168.0.7", "1.2.3.4", true),
            ("192.168.0.7", "", true),
            ("9.9.9.9", "127.0.0.1", true),
            ("", "127.0.0.1", true),
            ("", "10.0.0.1", false),
            ("", "", false),
        ] {
            assert_eq!(
                restrictions.allow(&ends(client, server)),
                allowed,
                "{client} {server}"
            );
        }
        let shown = array![
            {"clientSource": ["10.0.0.0/8", "::1/128"], "serverAddress": ["10.0.0.1/32"]},
            {"clientSource": ["192.168.0.7/32"]},
            {"serverAddress": ["127.0.0.1/32"]}
        ];
        assert_eq!(restrictions.to_array().as_doc(), shown.as_doc());
        let none = Restrictions::parse(Doc::empty()).unwrap();
        assert!(none.is_empty() && none.allow(&Ends::default()));
        // No client meets a list without ranges.
        let nobody = Restrictions::parse(&array![{"clientSource": []}].into_docbuf()).unwrap();
        assert!(!nobody.allow(&ends("127.0.0.1", "127.0.0.1")));
    }

    #[test]
    fn wrong_restrictions_are_refused() {
        for (given, code) in [
            (array![1], 14),
            (array![{}], 2),
            (array![{"clientSource": "127.0.0.1"}], 14),
            (array![{"clientSource": [1]}], 14),
            (array![{"clientSource": ["x"]}], 2),
            (array![{"serverAddress": ["127.0.0.1/40"]}], 2),
            (array![{"clientSource": ["::1"], "port": 1}], 40415),
            (
                array![{"clientSource": ["::1"], "clientSource": ["::1"]}],
                40413,
            ),
        ] {
            let error = Restrictions::parse(given.as_doc()).unwrap_err();
            assert_eq!(error.code().code(), code, "{given:?}");
            assert!(normalized(given.as_doc()).is_err());
        }
        let stored =
            normalized(&array![{"serverAddress": ["::1"], "clientSource": ["::1"]}].into_docbuf());
        let expected = doc! {"a": [{"clientSource": ["::1"], "serverAddress": ["::1"]}]};
        assert_eq!(doc! {"a": stored.unwrap().as_value()}, expected);
    }
}
