//! The table of parameters. A parameter that depends on another one's value comes after it.

mod audit;
mod encryption;
mod log;
mod logins;
mod network;
mod operation;
mod process;
mod profiling;
mod query;
mod replication;
mod security;
mod state;
mod storage;
mod tikv;
mod tls;

use super::parameter::Parameter;

static SECTIONS: &[&[Parameter]] = &[
    storage::DATA_DIRECTORY,
    network::NETWORK,
    tls::TLS,
    storage::STORAGE,
    tikv::TIKV,
    log::LOG,
    process::PROCESS,
    profiling::PROFILING,
    operation::OPERATION,
    logins::LOGINS,
    security::SECURITY,
    audit::AUDIT,
    encryption::ENCRYPTION,
    replication::REPLICATION,
    query::QUERY,
    state::STATE,
];

pub fn all() -> impl Iterator<Item = &'static Parameter> {
    SECTIONS.iter().copied().flatten()
}

/// The parameters of `getParameter`, by name, as mongod lists them.
pub fn readable() -> Vec<&'static Parameter> {
    let mut found: Vec<_> = all().filter(|parameter| parameter.get.is_some()).collect();
    found.sort_by_key(|parameter| parameter.name);
    found
}

/// The parameter that `getParameter` and `setParameter` know by this name.
pub fn by_name(name: &str) -> Option<&'static Parameter> {
    all().find(|parameter| parameter.get.is_some() && parameter.name == name)
}

/// The parameter that `--setParameter` knows by this name.
pub fn by_start_name(name: &str) -> Option<&'static Parameter> {
    all().find(|parameter| parameter.is_start_parameter() && parameter.name == name)
}

/// The parameter with this path in the configuration file.
pub fn by_key(key: &str) -> Option<&'static Parameter> {
    all().find(|parameter| parameter.has_key(key))
}
