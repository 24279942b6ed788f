//! Lifetimes of cursors, sessions and transactions, the form of stored documents, the TTL monitor, checkpoints.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use frond_bson::MAX_DOCUMENT_BYTES;
use frond_store::NaturalOrder;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{Setter, boolean, owned, saturated};

pub static OPERATION: &[Parameter] = &[
    Parameter {
        name: "cursorTimeoutMillis",
        kind: Kind::Integer(1, i64::MAX / 1_000_000),
        default: "600000",
        doc: "Milliseconds until an idle cursor is closed (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|ms| s.cursor_timeout = Duration::from_millis(ms))
        }),
        get: Some(|server| {
            owned(i64::try_from(server.cursor_timeout().as_millis()).unwrap_or(i64::MAX))
        }),
        set: Some(Setter::Integer(|server, ms| {
            server.set_cursor_timeout(Duration::from_millis(ms.unsigned_abs()))
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "enableTestCommands",
        kind: Kind::Switch(false),
        doc: "Enable configureFailPoint, which makes commands fail on demand",
        apply: Some(|s, v| v.switch().map(|on| s.test_commands = on)),
        get: Some(|server| owned(server.settings.test_commands)),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "expiredChangeStreamPreImageRemovalJobSleepSecs",
        kind: Kind::Integer(1, i32::MAX as i64),
        default: "10",
        doc: "Seconds between passes that remove expired pre-images of change streams (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|secs| s.pre_image_period = Duration::from_secs(secs))
        }),
        get: Some(|server| saturated(server.maintenance.oplog.pre_image_period().as_secs())),
        set: Some(Setter::Integer(|server, secs| {
            let secs = secs.unsigned_abs();
            server.maintenance.oplog.set_pre_image_period_secs(secs);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "largeDocumentBytes",
        kind: Kind::Integer(0, MAX_DOCUMENT_BYTES as i64),
        default: "32768",
        doc: "Bytes from which documents with a large sub-document are stored in parts; 0 for never (default {default})",
        apply: Some(|s, v| {
            s.large_documents.threshold_bytes = match v.integer()? {
                0 => usize::MAX,
                bytes => bytes,
            };
            Ok(())
        }),
        get: Some(|server| {
            let bytes = server.settings.large_documents.threshold_bytes;
            owned(if bytes == usize::MAX { 0 } else { bytes as i64 })
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "localLogicalSessionTimeoutMinutes",
        kind: Kind::Integer(1, i32::MAX as i64),
        default: "30",
        doc: "Minutes until an unused session expires (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|minutes: u64| s.session_timeout = Duration::from_secs(minutes * 60))
        }),
        get: Some(|server| owned(server.clients.sessions.timeout_minutes())),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "maxTransactionLockRequestTimeoutMillis",
        kind: Kind::Integer(-1, i32::MAX as i64),
        default: "5",
        doc: "Accepted without effect: statements of transactions wait for no locks (default {default})",
        apply: Some(|s, v| v.integer().map(|ms| s.transaction_lock_wait_ms = ms)),
        get: Some(|server| owned(server.clients.transaction_lock_wait_ms.load(Relaxed))),
        set: Some(Setter::Integer(|server, ms| {
            let ms = i32::try_from(ms).unwrap_or(i32::MAX);
            server.clients.transaction_lock_wait_ms.store(ms, Relaxed);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "transactionLifetimeLimitSeconds",
        kind: Kind::Integer(1, i32::MAX as i64),
        default: "60",
        doc: "Seconds until an open transaction is aborted (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|secs| s.transaction_lifetime = Duration::from_secs(secs))
        }),
        get: Some(|server| saturated(server.clients.sessions.transaction_lifetime().as_secs())),
        set: Some(Setter::Integer(|server, secs| {
            let lifetime = Duration::from_secs(secs.unsigned_abs());
            server.clients.sessions.set_transaction_lifetime(lifetime);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "naturalOrder",
        kind: Kind::Choice(&["_id", "insertion"]),
        default: "_id",
        doc: "The natural order of new collections, unless create sets it (default {default})",
        apply: Some(|s, v| {
            s.natural_order = NaturalOrder::named(v.text()?).unwrap_or_default();
            Ok(())
        }),
        get: Some(|server| owned(server.settings.natural_order.name())),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "largeDocumentSegmentBytes",
        kind: Kind::Integer(16, 1024 * 1024),
        default: "4096",
        doc: "Approximate bytes of such a part (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|bytes| s.large_documents.segment_bytes = bytes)
        }),
        get: Some(|server| owned(server.settings.large_documents.segment_bytes as i64)),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlIndexDeleteTargetDocs",
        kind: Kind::Integer(0, i64::MAX),
        default: "50000",
        doc: "Documents that a batch of the TTL monitor deletes by one index before the next index comes; 0 sets no limit (default {default})",
        apply: Some(|s, v| v.integer().map(|value| s.ttl_batches.documents = value)),
        get: Some(|server| saturated(server.maintenance.ttl.batches().documents)),
        set: Some(Setter::Integer(|server, value| {
            let value = value.unsigned_abs();
            server
                .maintenance
                .ttl
                .change_batches(|batches| batches.documents = value);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlIndexDeleteTargetTimeMS",
        kind: Kind::Integer(0, i32::MAX as i64),
        default: "1000",
        doc: "Milliseconds after which such a batch ends; 0 sets no limit (default {default})",
        apply: Some(|s, v| v.integer().map(|value| s.ttl_batches.time_ms = value)),
        get: Some(|server| saturated(server.maintenance.ttl.batches().time_ms)),
        set: Some(Setter::Integer(|server, value| {
            let value = value.unsigned_abs();
            server
                .maintenance
                .ttl
                .change_batches(|batches| batches.time_ms = value);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlMonitorBatchDeletes",
        kind: Kind::Switch(true),
        default: "true",
        doc: "Let the TTL monitor delete many documents in one commit, and the indexes take turns; otherwise each document is \
              deleted by itself, and an index is finished before the next one comes (default {default})",
        apply: Some(|s, v| v.switch().map(|on| s.ttl_batches.enabled = on)),
        get: Some(|server| owned(server.maintenance.ttl.batches().enabled)),
        set: Some(Setter::Value(|server, value| {
            let on = value.truthy();
            server
                .maintenance
                .ttl
                .change_batches(|batches| batches.enabled = on);
            Ok(())
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlMonitorEnabled",
        kind: Kind::Switch(true),
        default: "true",
        doc: "Delete documents that expire by a TTL index (default {default})",
        apply: Some(|s, v| v.switch().map(|on| s.ttl_monitor = on)),
        get: Some(|server| owned(server.maintenance.ttl.is_enabled())),
        set: Some(Setter::Value(|server, value| {
            server.maintenance.ttl.enable(value.truthy());
            Ok(())
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlMonitorMaxThreads",
        kind: Kind::Integer(1, 64),
        default: "4",
        doc: "The most threads that delete expired documents of an index at the same time; more than one only while the backlog is old and ttlMonitorSharePercent is 100 (default {default})",
        apply: Some(|s, v| v.integer().map(|value| s.ttl_batches.threads_max = value)),
        get: Some(|server| saturated(server.maintenance.ttl.batches().threads_max)),
        set: Some(Setter::Integer(|server, value| {
            let value = value.unsigned_abs();
            server
                .maintenance
                .ttl
                .change_batches(|batches| batches.threads_max = value);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlMonitorSharePercent",
        kind: Kind::Integer(1, 100),
        default: "100",
        doc: "The part of the time in which the TTL monitor deletes documents while some have expired, in percent; it pauses after each commit for the rest (default {default})",
        apply: Some(|s, v| v.integer().map(|value| s.ttl_batches.share = value)),
        get: Some(|server| saturated(server.maintenance.ttl.batches().share)),
        set: Some(Setter::Integer(|server, value| {
            let value = value.unsigned_abs();
            server
                .maintenance
                .ttl
                .change_batches(|batches| batches.share = value);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlMonitorSleepSecs",
        kind: Kind::Integer(1, i32::MAX as i64),
        default: "60",
        doc: "Seconds between passes of the TTL monitor (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|secs| s.ttl_monitor_sleep = Duration::from_secs(secs))
        }),
        get: Some(|server| saturated(server.maintenance.ttl.sleep_secs())),
        set: Some(Setter::Integer(|server, secs| {
            server.maintenance.ttl.set_sleep_secs(secs.unsigned_abs())
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "ttlMonitorSubPassTargetSecs",
        kind: Kind::Integer(0, i32::MAX as i64),
        default: "60",
        doc: "Seconds after which a pass of the TTL monitor looks again at which indexes there are (default {default})",
        apply: Some(|s, v| v.integer().map(|value| s.ttl_batches.sub_pass_secs = value)),
        get: Some(|server| saturated(server.maintenance.ttl.batches().sub_pass_secs)),
        set: Some(Setter::Integer(|server, value| {
            let value = value.unsigned_abs();
            server
                .maintenance
                .ttl
                .change_batches(|batches| batches.sub_pass_secs = value);
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "notablescan",
        name: "notablescan",
        kind: Kind::Switch(true),
        default: "false",
        doc: "Refuse queries that would have to read a whole collection (default {default})",
        apply: Some(|s, v| v.switch().map(|on| s.no_collection_scans = on)),
        get: Some(|server| owned(server.execution.no_collection_scans.load(Relaxed))),
        set: Some(Setter::Value(|server, value| {
            let on = if value.is_number() {
                value.truthy()
            } else {
                boolean("notablescan", value)?
            };
            server.execution.no_collection_scans.store(on, Relaxed);
            Ok(())
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "syncdelay",
        key: "storage.syncPeriodSecs",
        name: "syncdelay",
        kind: Kind::Integer(0, 9_000_000),
        default: "0",
        doc: "Seconds after which a checkpoint is written at the latest if there were commits; 0 leaves it to the engine, which \
           writes one when memory is flushed and when it is idle (default {default})",
        apply: Some(|s, v| v.integer().map(|secs| s.checkpoint_secs = secs)),
        get: Some(|server| owned(server.maintenance.checkpoint_secs.load(Relaxed) as f64)),
        set: Some(Setter::Integer(|server, secs| {
            let secs = secs.unsigned_abs();
            server.maintenance.checkpoint_secs.store(secs, Relaxed);
        })),
        ..Parameter::EMPTY
    },
];
