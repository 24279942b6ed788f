//! A server whose data is in a TiKV cluster.

use crate::parameters::kind::Kind;
use crate::parameters::parameter::{Need, Parameter};

pub static TIKV: &[Parameter] = &[
    Parameter {
        option: "storageEngine",
        key: "storage.engine",
        kind: Kind::Choice(&["frond", "tikv"]),
        default: "frond",
        doc: "Where the data is: in files of this server (frond, the default), or in a TiKV cluster (tikv), which any number of \
           servers share",
        apply: Some(|s, v| {
            s.tikv.is_on = v.text()? == "tikv";
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "pd",
        key: "storage.tikv.pd",
        needs: Some(Need::Tikv),
        kind: Kind::List("HOST:PORT,…"),
        doc: "Addresses of the cluster's placement drivers (PD)",
        apply: Some(|s, v| {
            let addresses = v.list()?;
            for address in addresses {
                let port = address.rsplit_once(':').map(|(_, port)| port);
                if port.is_none_or(|port| port.parse::<u16>().is_err()) {
                    return Err(format!(
                        "'{address}' is not of the form HOST:PORT, such as 10.0.0.1:2379"
                    ));
                }
            }
            s.tikv.pd = addresses.to_vec();
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tikvCAFile",
        key: "storage.tikv.CAFile",
        needs: Some(Need::Tikv),
        kind: Kind::Text("FILE"),
        doc: "The authorities that the certificates of PD and TiKV are checked with (PEM); turns TLS to them on",
        apply: Some(|s, v| v.path().map(|path| s.tikv.ca_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tikvCertFile",
        key: "storage.tikv.certFile",
        needs: Some(Need::Tikv),
        kind: Kind::Text("FILE"),
        doc: "This server's certificate for PD and TiKV (PEM)",
        apply: Some(|s, v| v.path().map(|path| s.tikv.cert_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tikvKeyFile",
        key: "storage.tikv.keyFile",
        needs: Some(Need::Tikv),
        kind: Kind::Text("FILE"),
        doc: "The private key of this certificate (PEM)",
        apply: Some(|s, v| v.path().map(|path| s.tikv.key_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tikvKeyPrefix",
        key: "storage.tikv.keyPrefix",
        needs: Some(Need::Tikv),
        kind: Kind::Text("TEXT"),
        default: "frond/",
        doc: "Prefix of all keys (default {default}), so that several deployments can share a cluster; the servers of one \
           deployment have the same",
        apply: Some(|s, v| {
            let prefix = v.text()?;
            if prefix.is_empty()
                || prefix.len() > 64
                || !prefix.bytes().all(|byte| byte.is_ascii_graphic())
            {
                return Err("must be 1 to 64 printable characters of ASCII, without spaces".into());
            }
            if prefix.starts_with(['m', 't']) {
                return Err("must not begin with m or t: those are TiDB's keys".into());
            }
            s.tikv.key_prefix = prefix.to_owned();
            Ok(())
        }),
        ..Parameter::EMPTY
    },
];
