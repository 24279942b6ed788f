//! Properties of the server that tools read and nothing changes.

use frond_bson::doc;
use frond_runtime::AdmissionClass;
use frond_store::FEATURE_COMPATIBILITY_VERSION;

use crate::limits::DOCUMENT_BYTES_MAX;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{owned, saturated};

pub static STATE: &[Parameter] = &[
    Parameter {
        name: "diagnosticDataCollectionEnabled",
        doc: "Whether the server records its metrics each second: always true",
        get: Some(|_| owned(true)),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "featureCompatibilityVersion",
        doc: "The version of MongoDB that tools take the server for",
        get: Some(|_| owned(&doc! {"version": FEATURE_COMPATIBILITY_VERSION})),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "maxBSONObjectSize",
        doc: "Bytes of the largest document",
        get: Some(|_| owned(DOCUMENT_BYTES_MAX as i32)),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "storageEngineConcurrentReadTransactions",
        doc: "Reading commands that run at once",
        get: Some(|_| saturated(AdmissionClass::Read.tickets())),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "storageEngineConcurrentWriteTransactions",
        doc: "Writing commands that run at once",
        get: Some(|_| saturated(AdmissionClass::Write.tickets())),
        ..Parameter::EMPTY
    },
];
