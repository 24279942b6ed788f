use frond_bson::{ArrayBuf, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::cluster_parameters::CHANGE_STREAM_OPTIONS;
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};

pub struct GetClusterParameter;

const GET_CLUSTER_PARAMETER: Spec = Spec {
    names: &["getClusterParameter"],
    audits: Audited::GetClusterParameter,
    doc: "Returns stored parameters: changeStreamOptions.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for GetClusterParameter {
    fn spec(&self) -> &'static Spec {
        &GET_CLUSTER_PARAMETER
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::GetClusterParameter))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let parameters = &cx.server.set.cluster_parameters;
        let args = cx.args();
        let given = args.get("getClusterParameter").unwrap_or(Value::Null);
        let wrong = |value: &Value<'_>| {
            args.wrong_type("getClusterParameter", value, "types '[string, array]'")
        };
        let mut found = ArrayBuf::new();
        match given {
            Value::String("*") => found.push(&parameters.get(CHANGE_STREAM_OPTIONS)?),
            Value::String(name) => found.push(&parameters.get(name)?),
            Value::Array(names) if !names.is_empty() => {
                for name in names.values() {
                    let name = name.as_str().ok_or_else(|| wrong(&name))?;
                    found.push(&parameters.get(name)?);
                }
            }
            Value::Array(_) => {
                return Err(Error::bad_value(
                    "Must supply at least one cluster server parameter name to getClusterParameter",
                ));
            }
            other => return Err(wrong(&other)),
        }
        Ok(found.into_field("clusterParameters"))
    }
}

pub struct SetClusterParameter;

const SET_CLUSTER_PARAMETER: Spec = Spec {
    names: &["setClusterParameter"],
    audits: Audited::SetClusterParameter,
    doc: "Changes a stored parameter: changeStreamOptions.",
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    writes: true,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for SetClusterParameter {
    fn spec(&self) -> &'static Spec {
        &SET_CLUSTER_PARAMETER
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::SetClusterParameter))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let given = args
            .doc_field("setClusterParameter")?
            .ok_or_else(|| args.missing("setClusterParameter"))?;
        if given.count() != 1 {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "setClusterParameter only supports setting exactly one parameter",
            ));
        }
        let (name, value) = given.first().unwrap_or(("", Value::Null));
        let Value::Document(value) = value else {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                format!(
                    "Cluster parameter value must be object, got {}",
                    value.type_name()
                ),
            ));
        };
        let (server, store) = (cx.server, &cx.server.store);
        server.set.cluster_parameters.set(store, name, value)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use frond_bson::doc;

    use super::*;
    use crate::cluster_parameters::ClusterParameters;
    use crate::testing::TestServer;

    fn options(value: impl Into<Value<'static>>) -> DocBuf {
        let value = value.into();
        doc! {"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": value}}}
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_expiry_of_pre_images_is_set_and_survives_a_restart() {
        let mut server = TestServer::new();
        let get = doc! {"getClusterParameter": "changeStreamOptions"};
        let shown = |reply: &DocBuf| {
            let all = reply.get_array("clusterParameters").unwrap();
            assert_eq!(all.count(), 1);
            let one = all.get_doc("0").unwrap();
            assert_eq!(one.get_str("_id"), Some("changeStreamOptions"));
            let set_at = one.get("clusterParameterTime");
            assert!(matches!(set_at, Some(Value::Timestamp(_))));
            let images = one.get_doc("preAndPostImages").unwrap();
            images.get("expireAfterSeconds").unwrap().to_owned()
        };
        let reply = server.run("admin", get.clone());
        assert_eq!(shown(&reply).as_value(), Value::String("off"));
        assert_eq!(
            server.server.set.cluster_parameters.pre_image_expiry(),
            None
        );
        server.run("admin", doc! {"setClusterParameter": &options(100)});
        for name in ["changeStreamOptions", "*"] {
            let reply = server.run("admin", doc! {"getClusterParameter": name});
            assert_eq!(shown(&reply).as_value(), Value::Int64(100));
        }
        let reply = server.run(
            "admin",
            doc! {"getClusterParameter": ["changeStreamOptions"]},
        );
        assert_eq!(shown(&reply).as_value(), Value::Int64(100));
        let loaded = ClusterParameters::load(&server.server.store).unwrap();
        assert_eq!(loaded.pre_image_expiry(), Some(Duration::from_secs(100)));
        server.run("admin", doc! {"setClusterParameter": &options("off")});
        let reply = server.run("admin", get);
        assert_eq!(shown(&reply).as_value(), Value::String("off"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_parameters_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"getClusterParameter": "none"}, 4),
            (doc! {"getClusterParameter": []}, 2),
            (doc! {"getClusterParameter": 1}, 14),
            (doc! {"getClusterParameter": [1]}, 14),
            (doc! {"setClusterParameter": {"none": {}}}, 4),
            (doc! {"setClusterParameter": {"none": 1}}, 20),
            (doc! {"setClusterParameter": {}}, 72),
            (doc! {"setClusterParameter": 1}, 14),
            (doc! {"setClusterParameter": {"changeStreamOptions": {}}}, 2),
            (
                doc! {"setClusterParameter": {"changeStreamOptions": {"preAndPostImages": {}}}},
                2,
            ),
            (doc! {"setClusterParameter": &options("on")}, 2),
            (doc! {"setClusterParameter": &options(0)}, 2),
            (doc! {"setClusterParameter": &options(-1)}, 2),
            (doc! {"setClusterParameter": &options(true)}, 2),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
        assert_eq!(server.code("test", doc! {"getClusterParameter": "*"}), 13);
    }
}
