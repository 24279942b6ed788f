//! A directory of the file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::fs::FallocateFlags;

use super::mapping::Mapping;
use super::spare_handles::SpareHandles;
use super::{Disk, DiskFile, DiskSpace, SharedMap};

/// Files in a directory, with direct I/O where the file system has it.
pub struct FsDisk {
    path: PathBuf,
    direct_io: bool,
    read_only: bool,
    spare: SpareHandles,
    /// The open directory: syncing it needs no file handle then, when there are none left.
    directory: OnceLock<File>,
}

impl FsDisk {
    /// A disk over the directory `path`, which is created on first use.
    pub fn new(path: PathBuf, direct_io: bool) -> FsDisk {
        FsDisk {
            path,
            direct_io,
            read_only: false,
            spare: SpareHandles::new(),
            directory: OnceLock::new(),
        }
    }

    /// A read-only disk over a directory: calls that would change it fail.
    pub fn read_only(path: PathBuf) -> FsDisk {
        FsDisk {
            path,
            direct_io: true,
            read_only: true,
            spare: SpareHandles::new(),
            directory: OnceLock::new(),
        }
    }
}

impl FsDisk {
    fn open_once(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true);
        if !self.read_only {
            std::fs::create_dir_all(&self.path)?;
            options.write(true).create(true).truncate(false);
        }
        if direct && self.direct_io {
            let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
            // Some file systems (tmpfs before Linux 6.6) refuse the flag; then I/O is buffered.
            match options.clone().custom_flags(flags).open(&path) {
                Ok(file) => return Ok(Arc::new(FsFile(file))),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Arc::new(FsFile(options.open(&path)?)))
    }

    fn list_once(&self) -> io::Result<Vec<String>> {
        if !self.read_only {
            std::fs::create_dir_all(&self.path)?;
        }
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }
}

impl Disk for FsDisk {
    fn open(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.spare.open(|| self.open_once(name, direct))?;
        self.spare.fill();
        Ok(file)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.spare.open(|| self.list_once())?;
        self.spare.fill();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        if let Some(directory) = self.directory.get() {
            return directory.sync_all();
        }
        let directory = self.spare.open(|| File::open(&self.path))?;
        self.directory.get_or_init(|| directory).sync_all()
    }

    fn space(&self) -> io::Result<Option<DiskSpace>> {
        let found = rustix::fs::statvfs(&self.path)?;
        // Some virtual file systems do not report their size.
        Ok((found.f_blocks > 0).then(|| DiskSpace {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            available: found.f_bavail.saturating_mul(found.f_frsize),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn maps_files(&self) -> bool {
        true
    }

    fn map(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Box<dyn SharedMap>> {
        if self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if copies_on_write(&file)? {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the file system moves a block when it is written again, for which there may be no room",
            ));
        }
        unshare(&file, offset, bytes as u64)?;
        Ok(Box::new(Mapping::new(&file, offset, bytes)?))
    }
}

/// Gives a part of a file blocks of its own: those that it shares with a copy of the file are replaced at the next write,
/// for which there may be no room. A file system without shared blocks does not have this call.
#[cfg(target_os = "linux")]
fn unshare(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::UNSHARE_RANGE, offset, bytes) {
        Err(
            error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::IO),
        ) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn unshare(_: &File, _: u64, _: u64) -> io::Result<()> {
    Ok(())
}

/// Whether the file system allocates a new block for each write, so that a write to a mapping can fail on a full disk;
/// the process would get a signal then.
#[cfg(target_os = "linux")]
fn copies_on_write(file: &File) -> io::Result<bool> {
    /// The numbers of Btrfs, ZFS and bcachefs.
    const MAGICS: [u32; 3] = [0x9123_683E, 0x2FC1_2FC1, 0xCA45_1A4E];
    let found = rustix::fs::fstatfs(file)?.f_type as u32;
    Ok(MAGICS.contains(&found))
}

#[cfg(not(target_os = "linux"))]
fn copies_on_write(_: &File) -> io::Result<bool> {
    // APFS does.
    Ok(cfg!(target_os = "macos"))
}

struct FsFile(File);

impl DiskFile for FsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(
            &self.0,
            FallocateFlags::KEEP_SIZE,
            0,
            len,
        )?)
    }

    fn allocated(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.0.metadata()?.blocks() * 512))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0, flags, offset, len)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}
