//! The part of RocksDB's C interface (`rocksdb/c.h`, version 7.8) that is used here, behind safe
//! types. With `lmdb.rs` it is the only `unsafe` code of this crate.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};

/// What a call of the library returns; an error is the library's text.
pub type Result<T> = std::result::Result<T, String>;

/// Any object of the library: its types are opaque.
type Object = *mut c_void;

const LZ4: c_int = 4;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_free(text: *mut c_void);

    fn rocksdb_options_create() -> Object;
    fn rocksdb_options_destroy(options: Object);
    fn rocksdb_options_set_create_if_missing(options: Object, on: c_uchar);
    fn rocksdb_options_set_create_missing_column_families(options: Object, on: c_uchar);
    fn rocksdb_options_set_compression(options: Object, compression: c_int);
    fn rocksdb_options_set_db_write_buffer_size(options: Object, bytes: usize);
    fn rocksdb_options_set_write_buffer_size(options: Object, bytes: usize);
    fn rocksdb_options_set_max_background_jobs(options: Object, jobs: c_int);
    fn rocksdb_options_set_level_compaction_dynamic_level_bytes(options: Object, on: c_uchar);
    fn rocksdb_options_set_use_direct_reads(options: Object, on: c_uchar);
    fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(options: Object, on: c_uchar);
    fn rocksdb_options_set_bytes_per_sync(options: Object, bytes: u64);
    fn rocksdb_options_compaction_readahead_size(options: Object, bytes: usize);
    fn rocksdb_options_set_manual_wal_flush(options: Object, on: c_uchar);
    fn rocksdb_options_set_block_based_table_factory(options: Object, table: Object);

    fn rocksdb_block_based_options_create() -> Object;
    fn rocksdb_block_based_options_destroy(table: Object);
    fn rocksdb_block_based_options_set_block_size(table: Object, bytes: usize);
    fn rocksdb_block_based_options_set_filter_policy(table: Object, policy: Object);
    fn rocksdb_block_based_options_set_block_cache(table: Object, cache: Object);
    fn rocksdb_block_based_options_set_format_version(table: Object, version: c_int);
    fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(table: Object, on: c_uchar);
    fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(
        table: Object,
        on: c_uchar,
    );
    fn rocksdb_cache_create_lru(bytes: usize) -> Object;
    fn rocksdb_cache_destroy(cache: Object);
    fn rocksdb_filterpolicy_create_bloom_full(bits: f64) -> Object;

    fn rocksdb_open_column_families(
        options: Object,
        path: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const Object,
        families: *mut Object,
        error: *mut *mut c_char,
    ) -> Object;
    fn rocksdb_column_family_handle_destroy(family: Object);
    fn rocksdb_close(database: Object);

    fn rocksdb_writeoptions_create() -> Object;
    fn rocksdb_writeoptions_destroy(options: Object);
    fn rocksdb_readoptions_create() -> Object;
    fn rocksdb_readoptions_destroy(options: Object);
    fn rocksdb_flushoptions_create() -> Object;
    fn rocksdb_flushoptions_destroy(options: Object);

    fn rocksdb_writebatch_create() -> Object;
    fn rocksdb_writebatch_destroy(batch: Object);
    fn rocksdb_writebatch_put_cf(
        batch: Object,
        family: Object,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    fn rocksdb_writebatch_delete_cf(
        batch: Object,
        family: Object,
        key: *const c_char,
        key_len: usize,
    );
    fn rocksdb_write(database: Object, options: Object, batch: Object, error: *mut *mut c_char);
    fn rocksdb_delete_range_cf(
        database: Object,
        options: Object,
        family: Object,
        lower: *const c_char,
        lower_len: usize,
        upper: *const c_char,
        upper_len: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_flush_wal(database: Object, sync: c_uchar, error: *mut *mut c_char);
    fn rocksdb_flush_cf(database: Object, options: Object, family: Object, error: *mut *mut c_char);

    fn rocksdb_get_pinned_cf(
        database: Object,
        options: Object,
        family: Object,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> Object;
    fn rocksdb_pinnableslice_value(slice: Object, len: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: Object);

    fn rocksdb_create_iterator_cf(database: Object, options: Object, family: Object) -> Object;
    fn rocksdb_iter_seek(iterator: Object, key: *const c_char, key_len: usize);
    fn rocksdb_iter_valid(iterator: Object) -> c_uchar;
    fn rocksdb_iter_next(iterator: Object);
    fn rocksdb_iter_key(iterator: Object, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_value(iterator: Object, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_get_error(iterator: Object, error: *mut *mut c_char);
    fn rocksdb_iter_destroy(iterator: Object);

    fn rocksdb_property_int_cf(
        database: Object,
        family: Object,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int;
}

pub struct Settings {
    pub cache_bytes: usize,
    pub write_buffers_bytes: usize,
    pub write_buffer_bytes: usize,
    pub block_bytes: usize,
    pub background_jobs: i32,
    /// Whether table files are read and written past the kernel's page cache.
    pub direct_io: bool,
    /// Bits of a Bloom filter for each key.
    pub bloom_bits: f64,
}

/// An open database with its column families.
pub struct Database {
    database: Object,
    families: Vec<Object>,
    write: Object,
    read: Object,
    flush: Object,
    options: Object,
    cache: Object,
}

// SAFETY: the library's database, its column families and options that do not change may be used by
// many threads at once; `Database` changes none of its fields after `open`.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

fn at(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| error.to_string())
}

/// Calls the library with room for its error text.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error: *mut c_char = null_mut();
    let result = call(&mut error);
    if error.is_null() {
        return Ok(result);
    }
    // SAFETY: an error that is not null is a text of the library's, ours to free once.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        text
    };
    Err(text)
}

/// Lends the bytes that the library points to.
///
/// # Safety
/// `start` and `len` come from one call of the library, and what they point to lives for `'a`.
unsafe fn lend<'a>(start: *const c_char, len: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { &*slice_from_raw_parts(start.cast(), len) }
}

impl Database {
    /// Creates a database with these column families; the first must be `default`.
    pub fn open(path: &str, names: &[String], settings: &Settings) -> Result<Database> {
        let path = c_string(path)?;
        let names: Vec<CString> = names
            .iter()
            .map(|name| c_string(name))
            .collect::<Result<_>>()?;
        let name_starts: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let mut families = vec![null_mut(); names.len()];
        // SAFETY: each object is made by the library and passed to the calls for its type. The table
        // options take the filter policy over and copy a reference to the cache; the options
        // copy the table options, which are then freed.
        let (options, cache) = unsafe {
            let cache = rocksdb_cache_create_lru(settings.cache_bytes);
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_block_size(table, settings.block_bytes);
            rocksdb_block_based_options_set_filter_policy(
                table,
                rocksdb_filterpolicy_create_bloom_full(settings.bloom_bits),
            );
            rocksdb_block_based_options_set_format_version(table, 5);
            rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
            rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);

            let options = rocksdb_options_create();
            let direct = c_uchar::from(settings.direct_io);
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_create_missing_column_families(options, 1);
            rocksdb_options_set_compression(options, LZ4);
            rocksdb_options_set_db_write_buffer_size(options, settings.write_buffers_bytes);
            rocksdb_options_set_write_buffer_size(options, settings.write_buffer_bytes);
            rocksdb_options_set_max_background_jobs(options, settings.background_jobs);
            rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
            rocksdb_options_set_use_direct_reads(options, direct);
            rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, direct);
            rocksdb_options_set_bytes_per_sync(options, 1 << 20);
            rocksdb_options_compaction_readahead_size(options, 2 << 20);
            rocksdb_options_set_manual_wal_flush(options, 0);
            rocksdb_options_set_block_based_table_factory(options, table);
            rocksdb_block_based_options_destroy(table);
            (options, cache)
        };
        let family_options = vec![options; names.len()];
        // SAFETY: the three lists have one element for each column family and live until the call
        // returns, and so do the path and the names.
        let opened = checked(|error| unsafe {
            rocksdb_open_column_families(
                options,
                path.as_ptr(),
                names.len() as c_int,
                name_starts.as_ptr(),
                family_options.as_ptr(),
                families.as_mut_ptr(),
                error,
            )
        });
        // SAFETY: these calls only make objects.
        let (write, read, flush) = unsafe {
            (
                rocksdb_writeoptions_create(),
                rocksdb_readoptions_create(),
                rocksdb_flushoptions_create(),
            )
        };
        Ok(Database {
            database: opened?,
            families,
            write,
            read,
            flush,
            options,
            cache,
        })
    }

    pub fn write(&self, batch: &Batch<'_>) -> Result<()> {
        // SAFETY: all three objects are alive.
        checked(|error| unsafe { rocksdb_write(self.database, self.write, batch.batch, error) })
    }

    pub fn delete_range(&self, family: usize, lower: &[u8], upper: &[u8]) -> Result<()> {
        let family = self.families[family];
        // SAFETY: the objects are alive, and so are the keys until the call returns.
        checked(|error| unsafe {
            rocksdb_delete_range_cf(
                self.database,
                self.write,
                family,
                at(lower),
                lower.len(),
                at(upper),
                upper.len(),
                error,
            );
        })
    }

    pub fn sync_log(&self) -> Result<()> {
        // SAFETY: the database is alive.
        checked(|error| unsafe { rocksdb_flush_wal(self.database, 1, error) })
    }

    /// Writes out the write buffers of all column families, and waits for that.
    pub fn flush(&self) -> Result<()> {
        for family in &self.families {
            // SAFETY: the objects are alive.
            checked(|error| unsafe {
                rocksdb_flush_cf(self.database, self.flush, *family, error);
            })?;
        }
        Ok(())
    }

    /// Hands the value of a key to `visit`; returns whether the key was there.
    pub fn get(&self, family: usize, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool> {
        let family = self.families[family];
        // SAFETY: the objects are alive, and so is the key until the call returns.
        let slice = checked(|error| unsafe {
            rocksdb_get_pinned_cf(self.database, self.read, family, at(key), key.len(), error)
        })?;
        if slice.is_null() {
            return Ok(false);
        }
        let mut len = 0;
        // SAFETY: the slice is alive until it is destroyed here, and `visit` cannot keep what it is
        // lent. If `visit` panics, the slice leaks.
        unsafe {
            let start = rocksdb_pinnableslice_value(slice, &mut len);
            visit(lend(start, len));
            rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }

    /// Walks a column family from `from` on, until `visit` says no.
    pub fn scan(
        &self,
        family: usize,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        // SAFETY: the iterator lives until it is destroyed here. What it points to is valid until it
        // moves, and `visit` cannot keep what it is lent. If `visit` panics, the iterator leaks.
        unsafe {
            let iterator =
                rocksdb_create_iterator_cf(self.database, self.read, self.families[family]);
            rocksdb_iter_seek(iterator, at(from), from.len());
            while rocksdb_iter_valid(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = rocksdb_iter_key(iterator, &mut key_len);
                let value = rocksdb_iter_value(iterator, &mut value_len);
                if !visit(lend(key, key_len), lend(value, value_len)) {
                    break;
                }
                rocksdb_iter_next(iterator);
            }
            let result = checked(|error| rocksdb_iter_get_error(iterator, error));
            rocksdb_iter_destroy(iterator);
            result
        }
    }

    /// The sum of a number over all column families; one that the library does not know is 0.
    pub fn property(&self, name: &CStr) -> u64 {
        let value_of = |family: &Object| {
            let mut value = 0;
            // SAFETY: the objects are alive, and the value is written before the call returns.
            let status = unsafe {
                rocksdb_property_int_cf(self.database, *family, name.as_ptr(), &mut value)
            };
            if status == 0 { value } else { 0 }
        };
        self.families.iter().map(value_of).sum()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: nothing else refers to these objects, and each is freed once, the database after its
        // column families and before what it was opened with.
        unsafe {
            for family in &self.families {
                rocksdb_column_family_handle_destroy(*family);
            }
            rocksdb_close(self.database);
            rocksdb_writeoptions_destroy(self.write);
            rocksdb_readoptions_destroy(self.read);
            rocksdb_flushoptions_destroy(self.flush);
            rocksdb_options_destroy(self.options);
            rocksdb_cache_destroy(self.cache);
        }
    }
}

pub struct Batch<'a> {
    batch: Object,
    database: &'a Database,
}

impl<'a> Batch<'a> {
    pub fn new(database: &'a Database) -> Batch<'a> {
        // SAFETY: the call only makes an object.
        let batch = unsafe { rocksdb_writebatch_create() };
        Batch { batch, database }
    }

    pub fn put(&mut self, family: usize, key: &[u8], value: &[u8]) {
        let family = self.database.families[family];
        // SAFETY: the objects are alive; the batch copies the key and the value.
        unsafe {
            rocksdb_writebatch_put_cf(
                self.batch,
                family,
                at(key),
                key.len(),
                at(value),
                value.len(),
            );
        }
    }

    pub fn delete(&mut self, family: usize, key: &[u8]) {
        let family = self.database.families[family];
        // SAFETY: the objects are alive; the batch copies the key.
        unsafe { rocksdb_writebatch_delete_cf(self.batch, family, at(key), key.len()) }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // SAFETY: the batch is ours and is freed once.
        unsafe { rocksdb_writebatch_destroy(self.batch) }
    }
}
