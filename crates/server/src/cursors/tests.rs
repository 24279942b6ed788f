//! Tests of cursors and their table.

#![allow(clippy::unwrap_used)]

use frond_bson::{Doc, doc};

use super::*;

/// MemoryQuota without a limit.
struct Plenty;

impl BatchQuota for Plenty {
    fn begin(&mut self, _: usize, _: &Doc) -> Result<Room> {
        Ok(Room::Taken)
    }

    fn try_grow(&mut self, _: usize, _: &Doc) -> Result<Room> {
        Ok(Room::Taken)
    }

    fn wait(&mut self, _: usize, _: &mut dyn FnMut(Release) -> Result<()>) -> Result<()> {
        Ok(())
    }

    fn complete(&mut self, _: usize) {}
}

fn numbers(n: i32) -> Cursor {
    Cursor::fixed("db.c", (0..n).map(|i| doc! {"_id": i}).collect())
}

#[test]
fn batches_end_by_count_limit_and_size() {
    let mut cursor = numbers(5);
    assert_eq!(cursor.batch(Some(2), &mut Plenty).unwrap().len(), 2);
    assert!(!cursor.ended());
    assert_eq!(cursor.batch(Some(0), &mut Plenty).unwrap().len(), 0);
    assert_eq!(cursor.batch(None, &mut Plenty).unwrap().len(), 3);
    assert!(cursor.ended());
    assert_eq!((cursor.returned, cursor.batches), (5, 3));

    let mut cursor = numbers(5);
    cursor.remaining = Some(2);
    assert_eq!(cursor.batch(None, &mut Plenty).unwrap().len(), 2);
    assert!(cursor.ended());

    let large = "x".repeat(9 << 20);
    let documents = (0..3).map(|i| doc! {"_id": i, "x": &large}).collect();
    let mut cursor = Cursor::fixed("db.c", documents);
    for left in [2, 1, 0] {
        assert_eq!(cursor.batch(None, &mut Plenty).unwrap().len(), 1);
        assert_eq!(cursor.ended(), left == 0);
    }
}

#[test]
fn the_table_hands_out_a_cursor_to_one_at_a_time() {
    let table = Cursors::default();
    let id = table.insert(numbers(3));
    assert!(id > 0);
    let flag = Arc::new(AtomicBool::new(false));
    let out = table.check_out(id, &flag).unwrap();
    assert_eq!(
        table.check_out(id, &flag).err().unwrap().code(),
        ErrorCode::CursorInUse
    );
    out.put_back();
    assert_eq!(table.namespace(id).as_deref(), Some("db.c"));

    let out = table.check_out(id, &flag).unwrap();
    assert!(table.kill(id) && !table.kill(id));
    assert!(flag.load(Ordering::Relaxed) && out.was_killed());
    out.put_back();
    assert_eq!(
        table.check_out(id, &flag).err().unwrap().code(),
        ErrorCode::CursorNotFound
    );

    let id = table.insert(numbers(3));
    drop(table.check_out(id, &flag).unwrap());
    assert!(
        table.list().is_empty(),
        "a cursor that is not put back is closed"
    );
}

/// A command may have tens of kilobytes, and there may be many cursors.
#[test]
fn the_command_of_a_cursor_is_kept_once() {
    let table = Cursors::default();
    let command = Arc::new(doc! {"find": "c", "filter": {"a": 1}});
    let mut cursor = numbers(3);
    cursor.originating = command.clone();
    table.insert(cursor);
    let listed = table.list().remove(0);
    assert!(Arc::ptr_eq(&listed.originating, &command));
}

#[test]
fn open_cursors_are_counted() {
    let table = Cursors::default();
    let counts = |open, pinned, no_timeout| CursorCounts {
        open,
        pinned,
        no_timeout,
    };
    assert_eq!(table.counts(), counts(0, 0, 0));
    let idle = table.insert(numbers(3));
    let mut patient = numbers(3);
    patient.no_timeout = true;
    let patient = table.insert(patient);
    assert_eq!(table.counts(), counts(2, 0, 1));
    let flag = Arc::new(AtomicBool::new(false));
    let out = table.check_out(patient, &flag).unwrap();
    assert_eq!(table.counts(), counts(2, 1, 1));
    // A cursor with a waiting getMore is in use too.
    assert!(table.park(idle, &Arc::new(Notify::new())));
    assert_eq!(table.counts(), counts(2, 2, 1));
    out.put_back();
    assert!(table.unpark(idle) && table.kill(patient));
    assert_eq!(table.counts(), counts(1, 0, 0));
}

#[test]
fn cursors_close_by_owner_and_age() {
    let table = Cursors::default();
    let session = SessionId::random();
    let mut owned = numbers(1);
    owned.session = Some(session);
    table.insert(owned);
    let mut patient = numbers(1);
    patient.no_timeout = true;
    let patient = table.insert(patient);
    table.insert(Cursor::fixed("db2.x", vec![doc! {}]));
    let later = Instant::now() + Duration::from_secs(601);
    assert_eq!(table.kill_session(session), 1);
    assert_eq!(table.expire(Instant::now(), Duration::from_secs(600)), 0);
    assert_eq!(table.expire(later, Duration::from_secs(600)), 1);
    let namespace = table.namespace(patient).unwrap();
    let why = dropped(&[0xab; 16]);
    assert_eq!(table.end("db.other", &why), 0);
    assert_eq!(
        (table.end(&namespace, &why), table.end(&namespace, &why)),
        (1, 0)
    );
    // The error is kept for one getMore, and no longer than an idle cursor.
    let message = "collection dropped. UUID abababab-abab-abab-abab-abababababab";
    let ended = table.take_ended(patient).unwrap();
    assert_eq!(
        (ended.code(), ended.message()),
        (ErrorCode::QueryPlanKilled, message)
    );
    assert!(table.take_ended(patient).is_none());
    let mut patient = numbers(1);
    patient.no_timeout = true;
    let patient = table.insert(patient);
    table.end(&namespace, &why);
    assert_eq!(table.expire(later, Duration::from_secs(600)), 1);
    assert!(table.take_ended(patient).is_none());
    // One that is in use ends when its command puts it back.
    let busy = table.insert(numbers(1));
    let flag = Arc::new(AtomicBool::new(false));
    let out = table.check_out(busy, &flag).unwrap();
    table.end(&namespace, &why);
    assert!(flag.load(Ordering::Relaxed) && out.ended_by().is_some() && !out.was_killed());
    out.put_back();
    assert_eq!(
        table.check_out(busy, &flag).err().map(|error| error.code()),
        Some(ErrorCode::QueryPlanKilled)
    );
    assert_eq!(table.kill_all(), 0);
}
