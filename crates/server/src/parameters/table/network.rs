//! Addresses, limits of connections, the HTTP server, traces.

use frond_bson::ArrayBuf;
use frond_wire::Compressor;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{owned, saturated};
use crate::settings::{Exempt, UnixSocket};

const OVERRIDE: &str = "net.maxIncomingConnectionsOverride";

pub static NETWORK: &[Parameter] = &[
    Parameter {
        option: "port",
        key: "net.port",
        kind: Kind::Integer(0, 65_535),
        default: "27017",
        doc: "TCP port (default {default}; 0 chooses a free one)",
        apply: Some(|s, v| v.integer().map(|port| s.port = port)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "bind_ip",
        key: "net.bindIp",
        kind: Kind::Text("ADDRESSES"),
        default: "127.0.0.1",
        doc: "Addresses to listen on, separated by commas (default {default})",
        apply: Some(|s, v| {
            let mut names = Vec::new();
            for name in v.text()?.split(',').map(str::trim) {
                match name {
                    "" => return Err("has an empty address".into()),
                    "*" => names.push("0.0.0.0".to_string()),
                    // As in mongod, a path in the list is a Unix socket.
                    _ if name.starts_with('/') => s.unix_socket = UnixSocket::At(name.into()),
                    _ => names.push(name.to_string()),
                }
            }
            if names.is_empty() {
                return Err("names no address".into());
            }
            s.bind_ip = names;
            s.bind_ip_explicit = true;
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "bind_ip_all",
        key: "net.bindIpAll",
        kind: Kind::Switch(true),
        doc: "Listen on all IPv4 addresses",
        apply: Some(|s, v| {
            if v.switch()? {
                s.bind_ip = vec!["0.0.0.0".into()];
                s.bind_ip_explicit = true;
            }
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "connectionGroups",
        kind: Kind::Integer(0, 1024),
        default: "0",
        doc: "Groups of connections, each with threads and a queue of its own (default {default}: one for each processor, and one below four processors)",
        apply: Some(|s, v| v.integer().map(|groups| s.connection_groups = groups)),
        get: Some(|server| saturated(server.settings.connection_groups)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "ipv6",
        key: "net.ipv6",
        kind: Kind::Switch(true),
        doc: "With --bind_ip_all, also listen on all IPv6 addresses",
        apply: Some(|s, v| {
            if v.switch()? && s.bind_ip.iter().any(|ip| ip == "0.0.0.0") {
                s.bind_ip.push("::".into());
            }
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        key: "net.unixDomainSocket.enabled",
        kind: Kind::Switch(true),
        doc: "Also listen on a Unix socket /tmp/mongodb-PORT.sock",
        apply: Some(|s, v| {
            s.unix_socket = if v.switch()? {
                UnixSocket::InDirectory("/tmp".into())
            } else {
                UnixSocket::Off
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "unixSocketPrefix",
        key: "net.unixDomainSocket.pathPrefix",
        kind: Kind::Text("DIR"),
        doc: "Also listen on a Unix socket mongodb-PORT.sock in this directory",
        apply: Some(|s, v| {
            v.path()
                .map(|path| s.unix_socket = UnixSocket::InDirectory(path))
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "unixSocket",
        key: "net.unixDomainSocket.path",
        kind: Kind::Text("FILE"),
        doc: "Also listen on this Unix socket",
        apply: Some(|s, v| v.path().map(|path| s.unix_socket = UnixSocket::At(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "filePermissions",
        key: "net.unixDomainSocket.filePermissions",
        kind: Kind::Text("OCTAL"),
        default: "0700",
        doc: "Permissions of the Unix socket (default {default})",
        apply: Some(|s, v| {
            s.unix_socket_permissions = match u32::from_str_radix(v.text()?, 8) {
                Ok(bits) if bits <= 0o777 => bits,
                _ => return Err("must be an octal number up to 0777".into()),
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "maxConns",
        key: "net.maxIncomingConnections",
        kind: Kind::Integer(5, 1_000_000),
        default: "65536",
        doc: "Maximum number of simultaneous connections (default {default}, or what the limit of open files allows)",
        apply: Some(|s, v| v.integer().map(|n| s.connections_max = n)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "networkMessageCompressors",
        key: "net.compression.compressors",
        kind: Kind::Text("NAMES"),
        default: "snappy,zstd,zlib",
        doc: "Compressors to offer: snappy, zstd, zlib, or disabled (default {default})",
        apply: Some(|s, v| {
            let mut compressors = Vec::new();
            let list = v.text()?;
            if list != "disabled" {
                for name in list.split(',').map(str::trim) {
                    compressors.push(
                        Compressor::from_name(name)
                            .ok_or_else(|| format!("does not know the compressor '{name}'"))?,
                    );
                }
            }
            s.compressors = compressors;
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "httpPort",
        key: "net.http.port",
        kind: Kind::Integer(0, 65_535),
        doc: "Serve the console and metrics by HTTP on this TCP port of the same addresses, by HTTPS if TLS is required \
           (default none; 0 chooses a free one)",
        apply: Some(|s, v| v.integer().map(|port| s.http_port = Some(port))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "httpHosts",
        key: "net.http.hosts",
        kind: Kind::List("NAMES"),
        doc: "Further names under which browsers reach the console; addresses, localhost, the name of this machine and those \
           of net.bindIp always work",
        apply: Some(|s, v| {
            let mut hosts = Vec::new();
            for name in v.list()?.iter().map(|name| name.trim()) {
                if name.is_empty() || name.contains(['/', ':', '@', ' ']) {
                    return Err(format!("'{name}' is not the name of a host"));
                }
                hosts.push(name.to_ascii_lowercase());
            }
            s.http_hosts = hosts;
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "otlpEndpoint",
        key: "telemetry.otlp.endpoint",
        kind: Kind::Text("URL"),
        doc: "Send a span for each traced command to this collector of OpenTelemetry, such as http://127.0.0.1:4318, by \
           OTLP over HTTP (default none)",
        apply: Some(|s, v| v.text().map(|url| s.otlp_endpoint = Some(url.to_string()))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "traceSampling",
        key: "telemetry.otlp.sampling",
        kind: Kind::Number(0.0, 1.0),
        default: "1",
        doc: "Share of the commands to trace; a command whose comment names a client's span is traced if, and only if, that \
           span is sampled (default {default})",
        apply: Some(|s, v| v.number().map(|share| s.trace_sampling = share)),
        ..Parameter::EMPTY
    },
    Parameter {
        key: OVERRIDE,
        name: "maxIncomingConnectionsOverride",
        kind: Kind::List("RANGES"),
        doc: "Ranges of addresses (10.0.0.0/8) and Unix sockets whose clients the limits of connections do not stop",
        apply: Some(|s, v| {
            let exempt: Result<_, _> = v.list()?.iter().map(|part| Exempt::parse(part)).collect();
            s.connections_exempt = exempt?;
            Ok(())
        }),
        get: Some(|server| {
            let mut ranges = ArrayBuf::new();
            let value = server.settings.explicit.get(OVERRIDE);
            for range in value
                .and_then(|value| value.list().ok())
                .unwrap_or_default()
            {
                ranges.push(range);
            }
            owned(&ranges.into_field("ranges"))
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "maxIncomingConnectionsPerAddress",
        kind: Kind::Integer(0, 1_000_000),
        default: "32768",
        doc: "Simultaneous connections of one IPv4 address or one /64 of IPv6; 0 for no limit (default {default}, and at most 95% of maxIncomingConnections)",
        long_doc: "The limit keeps one address from taking all connections. Where fewer connections than the default are accepted, an \
                   address may have 95% of them, so that the only application server of a small server loses little. A value that \
                   is set is used as it is.",
        apply: Some(|s, v| {
            v.integer().map(|n| {
                s.connections_per_address = match n {
                    0 => usize::MAX,
                    n => n,
                };
            })
        }),
        get: Some(|server| {
            let most = server.settings.connections_per_address;
            owned(if most == usize::MAX { 0 } else { most as i64 })
        }),
        ..Parameter::EMPTY
    },
];
