//! The subject of a certificate as text: the name of a user in `$external`.
//!
//! The text is that of RFC 2253 as MongoDB writes it: the last attribute first, OpenSSL's short names, `,` between names
//! and `+` between the attributes of one, every byte beyond ASCII as `\XX` of its UTF-8. An attribute without a short name is
//! shown by its OID.

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::name::Name;

use crate::hex::hex;
use crate::oids;

/// The text of a subject. None if a value has characters that its type does not allow.
pub(crate) fn text(name: &Name) -> Option<String> {
    let mut out = String::new();
    // From the last to the first, also in a name with several attributes.
    let mut names: Vec<_> = name.iter_rdn().collect();
    names.reverse();
    for (n, rdn) in names.into_iter().enumerate() {
        let mut attributes: Vec<_> = rdn.iter().collect();
        attributes.reverse();
        for (m, attribute) in attributes.into_iter().enumerate() {
            match (n, m) {
                (0, 0) => {}
                (_, 0) => out.push(','),
                _ => out.push('+'),
            }
            append(attribute, &mut out)?;
        }
    }
    Some(out)
}

/// The attributes that the certificates of one organisation have in common: O, OU and DC, in a fixed order. Empty if there is
/// none, or one cannot be read.
pub(crate) fn organisation(name: &Name) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for attribute in name.iter() {
        let short = oids::short_name(&attribute.oid.to_string());
        let Some(short @ ("O" | "OU" | "DC")) = short else {
            continue;
        };
        let Decoded::Text(text) = string(attribute) else {
            return Vec::new();
        };
        found.push((short, text));
    }
    found.sort_unstable();
    found
}

fn append(attribute: &AttributeTypeAndValue, out: &mut String) -> Option<()> {
    let oid = attribute.oid.to_string();
    out.push_str(oids::short_name(&oid).unwrap_or(&oid));
    out.push('=');
    match string(attribute) {
        Decoded::Text(text) => escape(&text, out),
        Decoded::Other => {
            // Not a string: its encoding, in hex.
            out.push('#');
            let der = attribute.value.to_der().ok()?;
            out.push_str(&hex(&der));
        }
        Decoded::Invalid => return None,
    }
    Some(())
}

/// The value of an attribute.
enum Decoded {
    Text(String),
    /// It is not a string.
    Other,
    /// Its bytes do not fit its type.
    Invalid,
}

fn string(attribute: &AttributeTypeAndValue) -> Decoded {
    let bytes = attribute.value.value();
    let text = match attribute.value.tag() {
        Tag::Utf8String
        | Tag::PrintableString
        | Tag::Ia5String
        | Tag::NumericString
        | Tag::VisibleString => std::str::from_utf8(bytes).ok().map(str::to_owned),
        // Latin 1, as OpenSSL reads it.
        Tag::TeletexString => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => wide(bytes, |unit: [u8; 2]| u32::from(u16::from_be_bytes(unit))),
        // A `UniversalString`, which `Tag` does not name, is shown as any other value.
        _ => return Decoded::Other,
    };
    text.map_or(Decoded::Invalid, Decoded::Text)
}

/// Text of units of a fixed size.
fn wide<const N: usize>(bytes: &[u8], unit: impl Fn([u8; N]) -> u32) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        return None;
    }
    units
        .iter()
        .map(|bytes| char::from_u32(unit(*bytes)))
        .collect()
}

fn escape(text: &str, out: &mut String) {
    let last = text.len().saturating_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' ' | b'#' if at == 0 => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' ' if at == last => out.push_str("\\ "),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => {
                out.push('\\');
                out.push_str(&hex(&[byte]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::string::{BmpString, TeletexString};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use crate::certificate::CertificateInfo;

    /// The text of `openssl x509 -subject -nameopt RFC2253` for this file, but for the attribute 1.2.3.4.5: OpenSSL shows its
    /// encoding, MongoDB its text.
    #[test]
    fn subjects_are_written_as_openssl_and_mongodb_do() {
        let der = CertificateDer::from_pem_slice(include_bytes!("testdata/subject.pem")).unwrap();
        let expected = r#"CN=x,serialNumber=7,DC=example,1.2.3.4.5=text,emailAddress=a@b.c+OU=\ a\+b\\c=d,OU=\#tail \ ,O=M\C3\BCller\, \"S\C3\B6hne\" & \<Co\>\; \E6\9D\B1\E4\BA\AC,ST=New York,C=US"#;
        assert_eq!(CertificateInfo::read(&der).unwrap().subject, expected);
    }

    fn subject(values: Vec<(DnType, DnValue)>) -> String {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in values {
            params.distinguished_name.push(kind, value);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        CertificateInfo::read(certificate.der()).unwrap().subject
    }

    #[test]
    fn strings_of_all_types_become_text() {
        let values = vec![
            (
                DnType::OrganizationName,
                DnValue::BmpString(BmpString::try_from("Größe").unwrap()),
            ),
            (
                DnType::OrganizationalUnitName,
                DnValue::TeletexString(TeletexString::try_from("a,b").unwrap()),
            ),
            (DnType::CommonName, DnValue::from("line\nend\u{7f}")),
            (DnType::from_oid(&[2, 5, 4, 42]), DnValue::from(" ")),
        ];
        assert_eq!(
            subject(values),
            r"GN=\ ,CN=line\0Aend\7F,OU=a\,b,O=Gr\C3\B6\C3\9Fe"
        );
        assert_eq!(subject(vec![]), "");
    }
}
