//! Restores: from a repository, or from an archive file as it comes.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use frond_store::backup::{RestorePoint, RestoreTarget, Restored};
use frond_store::encryption::MasterKey;

use crate::description::Description;
use crate::error::{Error, Result};
use crate::extent::{Extent, unpack};
use crate::files;
use crate::mark::Mark;
use crate::parts::{DESCRIPTION, DESCRIPTION_BYTES_MAX};
use crate::plan::Plan;
use crate::progress::Meter;
use crate::record::{HEADER_BYTES, Header, Kind, Next, Records};
use crate::repository::Repository;

/// The result of a restore.
#[derive(Debug)]
pub struct Outcome {
    pub backup: Description,
    /// The moment: everything before its `time`, nothing behind its `until`.
    pub mark: Mark,
    /// The report of the engine.
    pub restored: Restored,
}

/// The place of the record of an extent: the index of the part, and the offset.
type Place = (usize, u64);

fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        Err(Error::Stopped)
    } else {
        Ok(())
    }
}

/// The data directory that a restore makes.
#[derive(Clone, Copy)]
pub struct Directory<'a> {
    pub path: &'a Path,
    /// The master key of a backup that is encrypted.
    pub master: Option<&'a MasterKey>,
}

impl Directory<'_> {
    fn create(self) -> Result<RestoreTarget> {
        let target = RestoreTarget::create(self.path)?;
        Ok(target.with_master_key(self.master.cloned()))
    }
}

/// Restores a moment from a repository into a new data directory.
pub fn from_repository(
    repository: &Repository,
    plan: &Plan,
    into: Directory<'_>,
    stop: &AtomicBool,
    meter: &mut Meter,
) -> Result<Outcome> {
    let Some(backup) = plan.chain.first() else {
        return Err(Error::Refused("a plan without a backup".to_owned()));
    };
    let needed = repository.extents(backup)?;
    let parts: Vec<(PathBuf, &Description)> = (plan.chain.iter())
        .flat_map(|one| {
            let folder = repository.folder(&one.id);
            let parts = one.parts.iter();
            parts.map(move |part| (folder.join(&part.name), one))
        })
        .collect();
    let places = find_extents(&parts, &needed, backup)?;
    let mut target = into.create()?;
    let written = (|| {
        let bytes = needed.iter().map(|extent| extent.len);
        meter.begin(bytes.fold(0, u64::saturating_add));
        write_extents(&parts, places, &mut target, stop, meter)?;
        let mut head = None;
        let mut body = Vec::new();
        for (path, one) in &parts {
            if one.id != backup.id {
                break;
            }
            let mut records = Records::open(path)?;
            loop {
                match records.skip_to_next()? {
                    Next::Record(_, header) if header.kind == Kind::Head => {
                        records.body(&header, &mut body)?;
                        head = Some(body.clone());
                    }
                    Next::Record(_, header) if header.kind == Kind::Log => {
                        records.body(&header, &mut body)?;
                        let [from, to, _] = header.numbers;
                        target.log(from, to, &body)?;
                    }
                    Next::Record(..) => {}
                    Next::End => break,
                    Next::Torn(at) => return Err(records.torn(at)),
                }
            }
        }
        let mut open: Option<(PathBuf, Records<_>)> = None;
        for piece in &plan.pieces {
            check_stop(stop)?;
            let records = match &mut open {
                Some((path, records)) if *path == piece.path => records,
                _ => {
                    let records = Records::open(&piece.path)?;
                    &mut open.insert((piece.path.clone(), records)).1
                }
            };
            records.seek(piece.at)?;
            let Next::Record(_, header) = records.next()? else {
                return Err(records.torn(piece.at));
            };
            records.body(&header, &mut body)?;
            let [from, to, _] = header.numbers;
            target.log(from, to, &body)?;
        }
        head.ok_or_else(|| missing(backup, "the head of the data file"))
    })();
    let head = match written {
        Ok(head) => head,
        Err(error) => {
            target.discard();
            return Err(error);
        }
    };
    meter.end();
    meter.note("replaying the log");
    Ok(Outcome {
        backup: backup.clone(),
        mark: plan.mark,
        restored: target.finish(&head, plan.point)?,
    })
}

fn missing(backup: &Description, what: &str) -> Error {
    Error::Refused(format!("the backup {} lacks {what}", backup.id))
}

/// Finds the records of extents, in the newest backup that has them.
fn find_extents(
    parts: &[(PathBuf, &Description)],
    needed: &[Extent],
    backup: &Description,
) -> Result<HashMap<Extent, Place>> {
    let mut wanted: HashSet<Extent> = needed.iter().copied().collect();
    let mut places = HashMap::with_capacity(needed.len());
    for (at, (path, _)) in parts.iter().enumerate() {
        if wanted.is_empty() {
            break;
        }
        let mut records = Records::open(path)?;
        loop {
            match records.skip_to_next()? {
                Next::Record(offset, header) if header.kind == Kind::Extent => {
                    let extent = Extent {
                        offset: header.numbers[0],
                        len: header.len,
                        birth: header.numbers[1],
                    };
                    if wanted.remove(&extent) {
                        places.insert(extent, (at, offset));
                    }
                }
                Next::Record(..) => {}
                Next::End => break,
                Next::Torn(at) => return Err(records.torn(at)),
            }
        }
    }
    match wanted.iter().next() {
        None => Ok(places),
        Some(extent) => {
            let what = format!(
                "{} extents, one of them the one of {} bytes at {} of the data file",
                wanted.len(),
                extent.len,
                extent.offset
            );
            Err(missing(backup, &what))
        }
    }
}

/// Copies the extents in the order of their parts, which is nearly that of the data file.
fn write_extents(
    parts: &[(PathBuf, &Description)],
    places: HashMap<Extent, Place>,
    target: &mut RestoreTarget,
    stop: &AtomicBool,
    meter: &mut Meter,
) -> Result<()> {
    let mut places: Vec<(Place, Extent)> = places
        .into_iter()
        .map(|(extent, place)| (place, extent))
        .collect();
    places.sort_unstable_by_key(|(place, _)| *place);
    let mut open: Option<(usize, File)> = None;
    let mut body = Vec::new();
    for ((part, offset), extent) in places {
        check_stop(stop)?;
        let path = &parts[part].0;
        let file = match &open {
            Some((at, file)) if *at == part => file,
            _ => {
                let file = frond_files::open(path).map_err(Error::io("opening", path))?;
                &open.insert((part, file)).1
            }
        };
        body.resize(HEADER_BYTES + usize::try_from(extent.len).unwrap_or(0), 0);
        let read = file.read_exact_at(&mut body, offset);
        read.map_err(Error::io("reading", path))?;
        let (header, bytes) = body.split_at(HEADER_BYTES);
        let header = header.first_chunk().and_then(Header::decode);
        if !header.is_some_and(|header| header.fits(bytes)) {
            let what = format!(
                "the extent of {} bytes at {} of the data file does not match its checksum",
                extent.len, extent.offset
            );
            return Err(Error::Damaged(path.clone(), offset, what));
        }
        target.extent(extent.offset, bytes)?;
        meter.advance(extent.len);
    }
    Ok(())
}

/// Restores from an archive file, as it comes.
pub fn from_archive_file(
    input: impl Read,
    path: &Path,
    into: Directory<'_>,
    stop: &AtomicBool,
    meter: &mut Meter,
) -> Result<Outcome> {
    let mut target = into.create()?;
    let mut reading = Reading {
        path,
        needed: HashSet::new(),
        listed: 0,
        head: None,
        mark: None,
        description: None,
    };
    let read = reading.read(input, &mut target, stop, meter);
    let complete = read.and_then(|()| reading.complete());
    let (description, head, mark) = match complete {
        Ok(complete) => complete,
        Err(error) => {
            target.discard();
            return Err(error);
        }
    };
    meter.end();
    meter.note("replaying the log");
    Ok(Outcome {
        restored: target.finish(&head, RestorePoint::Position(mark.position))?,
        backup: description,
        mark,
    })
}

/// An archive file that is read.
struct Reading<'a> {
    path: &'a Path,
    /// Extents that have not come yet.
    needed: HashSet<Extent>,
    listed: u64,
    head: Option<Vec<u8>>,
    mark: Option<Mark>,
    description: Option<Description>,
}

impl Reading<'_> {
    fn read(
        &mut self,
        input: impl Read,
        target: &mut RestoreTarget,
        stop: &AtomicBool,
        meter: &mut Meter,
    ) -> Result<()> {
        let failed = |error| Error::io("reading", self.path)(error);
        let decoder = zstd::stream::read::Decoder::new(input).map_err(failed)?;
        let mut archive = tar::Archive::new(decoder);
        meter.begin(0);
        // Raw: long names and other extensions, which could have any length, are in no archive of ours.
        for entry in archive.entries().map_err(failed)?.raw(true) {
            let mut entry = entry.map_err(failed)?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let name = entry.path().map_err(failed)?.into_owned();
            let name = name
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            if name == DESCRIPTION {
                let text = files::text_of(&mut entry, DESCRIPTION_BYTES_MAX).map_err(failed)?;
                let parsed = Description::parse(&text);
                let parsed = parsed.map_err(|what| Error::Damaged(PathBuf::from(&name), 0, what));
                self.description = Some(parsed?);
            } else if name.ends_with(".frbk") {
                self.part(entry, &name, target, stop, meter)?;
            }
        }
        Ok(())
    }

    fn part(
        &mut self,
        input: impl Read,
        name: &str,
        target: &mut RestoreTarget,
        stop: &AtomicBool,
        meter: &mut Meter,
    ) -> Result<()> {
        let path = self.path.join(name);
        let mut records = Records::of_stream(input, &path);
        let mut body = Vec::new();
        loop {
            check_stop(stop)?;
            let header = match records.next()? {
                Next::Record(_, header) => header,
                Next::End => return Ok(()),
                Next::Torn(at) => return Err(records.torn(at)),
            };
            records.body(&header, &mut body)?;
            let [first, second, _] = header.numbers;
            match header.kind {
                Kind::Head => self.head = Some(body.clone()),
                Kind::Extents => {
                    let extents = unpack(&body)?;
                    self.listed += extents.len() as u64;
                    self.needed.extend(extents);
                }
                Kind::Extent => {
                    let extent = Extent {
                        offset: first,
                        len: header.len,
                        birth: second,
                    };
                    if self.needed.remove(&extent) {
                        target.extent(first, &body)?;
                    }
                    meter.advance(header.len);
                }
                Kind::Log => target.log(first, second, &body)?,
                Kind::Mark => self.mark = Some(Mark::read(&header, &body)),
            }
        }
    }

    fn complete(&mut self) -> Result<(Description, Vec<u8>, Mark)> {
        let parts = (self.description.take(), self.head.take(), self.mark.take());
        match parts {
            (Some(description), Some(head), Some(mark))
                if self.needed.is_empty() && self.listed == description.extents =>
            {
                Ok((description, head, mark))
            }
            (description, ..) => Err(Error::Refused(format!(
                "{} is not complete: {}",
                self.path.display(),
                match description {
                    None => "its end is missing",
                    Some(_) => "a part of it is missing",
                }
            ))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    type Member<'a> = (&'a str, tar::EntryType, &'a [u8]);

    fn archive(members: &[Member<'_>]) -> Vec<u8> {
        let encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        let mut tar = tar::Builder::new(encoder);
        for (name, kind, bytes) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_entry_type(*kind);
            if kind.is_symlink() {
                header.set_link_name("/etc/passwd").unwrap();
            }
            let name = format!("frond-backup/{name}");
            tar.append_data(&mut header, name, *bytes).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    /// The error of a restore, which must leave nothing behind.
    fn refused(archive: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let dbpath = folder.path().join("db");
        let stop = AtomicBool::new(false);
        let path = Path::new("archive");
        let restored = from_archive_file(
            archive,
            path,
            Directory {
                path: &dbpath,
                master: None,
            },
            &stop,
            &mut Meter::new(true),
        );
        assert_eq!(std::fs::read_dir(&dbpath).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        restored
            .err()
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn hostile_archives_are_refused() {
        use tar::EntryType::{GNULongName, Regular, Symlink, XHeader};

        let record = |kind: Kind, body: &[u8]| {
            let mut out = Header::new(kind, [0; 3], body).encode().to_vec();
            out.extend_from_slice(body);
            out
        };
        let bomb = vec![b' '; (DESCRIPTION_BYTES_MAX + 1) as usize];
        let long = vec![b'x'; 32 << 20];
        let list = crate::extent::pack(&[Extent {
            offset: u64::MAX - 5,
            len: 10,
            birth: 1,
        }]);
        let impossible = record(Kind::Extents, &list);
        let head = record(Kind::Head, &vec![0; (1 << 20) + 1]);
        let mut endless = Header::new(Kind::Extents, [0; 3], &[]).encode();
        // The length of the body.
        endless[32..40].copy_from_slice(&(1u64 << 62).to_le_bytes());
        let cases: [(&str, Vec<Member<'_>>, &str); 8] = [
            ("nothing", vec![], "its end is missing"),
            ("a bomb", vec![(DESCRIPTION, Regular, &bomb)], "more than"),
            (
                "a long name",
                vec![("x", GNULongName, &long)],
                "its end is missing",
            ),
            (
                "an extension",
                vec![("x", XHeader, &long)],
                "its end is missing",
            ),
            (
                "a link",
                vec![("part-000001.frbk", Symlink, b"")],
                "its end is missing",
            ),
            (
                "an impossible extent",
                vec![("part-000001.frbk", Regular, &impossible)],
                "no list of parts",
            ),
            (
                "an endless record",
                vec![("part-000001.frbk", Regular, &endless)],
                "no whole record",
            ),
            (
                "a large head",
                vec![("part-000001.frbk", Regular, &head)],
                "no whole record",
            ),
        ];
        for (what, members, why) in cases {
            let error = refused(&archive(&members));
            assert!(error.contains(why), "{what}: {error}");
        }
        let mut torn = archive(&[("part-000001.frbk", Regular, &record(Kind::Log, &[1; 100]))]);
        torn.truncate(torn.len() - 10);
        assert!(!refused(&torn).is_empty());
        let mut other = Vec::new();
        other.write_all(b"no archive").unwrap();
        assert!(!refused(&other).is_empty());
    }
}
