"""Large data: files of 100 MiB, and cursors over a million documents in a small server."""

import hashlib
import os
import random

import gridfs
import pymongo
from bson import encode
from bson.raw_bson import RawBSONDocument
from harness.server import Server
from harness.tap import equal, raises, run, test

MIB = 1 << 20
FILE_MIB = 100
DOCUMENTS = 1_000_000
CURSOR_KIB_MAX = 64 * 1024

# The engine's cache and its memtables share this budget. It is small here, so that the memory of a
# cursor stands out: the limit of a cursor is several times the budget, and applies to both together.
CACHE_GB = "0.016"


class Stream:
    """A file of random bytes that is never completely in memory. Has the hash of the bytes read."""

    def __init__(self, mib, seed):
        self.left = mib
        self.random = random.Random(seed)
        self.rest = b""
        self.hash = hashlib.sha256()

    def read(self, size=-1):
        while self.left and (size < 0 or len(self.rest) < size):
            self.rest += self.random.randbytes(MIB)
            self.left -= 1
        size = len(self.rest) if size < 0 else size
        piece, self.rest = self.rest[:size], self.rest[size:]
        self.hash.update(piece)
        return piece


@test
def a_file_of_100_MiB_comes_back_as_it_was(client):
    client.drop_database("files")
    db = client.files
    bucket = gridfs.GridFSBucket(db)
    source = Stream(FILE_MIB, 42)
    file_id = bucket.upload_from_stream("video.bin", source, metadata={"kind": "video"})
    found = hashlib.sha256()
    with bucket.open_download_stream(file_id) as stream:
        equal(stream.length, FILE_MIB * MIB)
        while piece := stream.read(MIB):
            found.update(piece)
    equal(found.hexdigest(), source.hash.hexdigest())
    chunks = db["fs.chunks"]
    size = 255 * 1024
    equal(chunks.count_documents({"files_id": file_id}), -(-FILE_MIB * MIB // size))
    equal(db.command("collStats", "fs.chunks")["count"], chunks.estimated_document_count())

    # Ranges, some across the boundary of two chunks, in any order.
    places = [600, size - 7, 50 * MIB, 3 * size, FILE_MIB * MIB - 500, 77 * MIB + 3, 5]
    pieces = {}
    source = Stream(FILE_MIB, 42)
    at = 0
    for place in sorted(places):
        while at < place:
            at += len(source.read(min(place - at, MIB)))
        pieces[place] = source.read(500)
        at += 500
    with bucket.open_download_stream_by_name("video.bin") as stream:
        for place in places:
            stream.seek(place)
            equal(stream.tell(), place)
            assert stream.read(500) == pieces[place], f"other bytes at {place}"
        stream.seek(-3, os.SEEK_END)
        equal(stream.read(), pieces[FILE_MIB * MIB - 500][-3:])
        equal(stream.read(), b"")


@test
def files_are_found_renamed_revised_and_deleted(client):
    db = client.files
    bucket = gridfs.GridFSBucket(db)
    video = bucket.find({"metadata.kind": "video"}).next()
    equal((video.filename, video.chunk_size), ("video.bin", 255 * 1024))
    small = [bucket.upload_from_stream("note.txt", f"revision {n}".encode()) for n in range(3)]
    equal(bucket.open_download_stream_by_name("note.txt").read(), b"revision 2")
    equal(bucket.open_download_stream_by_name("note.txt", revision=0).read(), b"revision 0")
    equal([f.length for f in bucket.find({"filename": "note.txt"}, sort=[("uploadDate", 1)])], [10] * 3)
    bucket.rename(small[1], "other.txt")
    equal(bucket.open_download_stream_by_name("other.txt").read(), b"revision 1")
    bucket.delete(video._id)
    equal(db["fs.chunks"].count_documents({}), 3)
    raises(gridfs.NoFile, bucket.open_download_stream, video._id)
    raises(gridfs.NoFile, bucket.delete, video._id)
    raises(gridfs.NoFile, bucket.open_download_stream_by_name, "video.bin")
    with bucket.open_upload_stream("aborted") as upload:
        upload.write(b"x" * MIB)
        upload.abort()
    equal(db["fs.chunks"].count_documents({}), 3)
    old = gridfs.GridFS(db, "old")
    file_id = old.put(b"a\nb\nc", filename="lines", kind="text")
    equal([list(old.get(file_id)), old.get(file_id).kind, old.list()], [[b"a\n", b"b\n", b"c"], "text", ["lines"]])
    indexes = db["fs.chunks"].index_information()
    equal(indexes["files_id_1_n_1"]["unique"], True)
    client.drop_database("files")


class Watched:
    """A server with a small cache and a million documents, whose memory is measured."""

    def __init__(self):
        self.server = Server(os.environ["FROND_BINARY"], options=["--cacheSizeGB", CACHE_GB])
        self.server.start()
        self.client = pymongo.MongoClient(self.server.uri)
        self.c = self.client.large.c
        for start in range(0, DOCUMENTS, 50_000):
            self.c.insert_many(
                (RawBSONDocument(encode({"_id": n, "k": n * 7919 % 1_000_003, "s": "a text of some length"}))
                 for n in range(start, start + 50_000)), ordered=False)

    def status(self, name):
        with open(f"/proc/{self.server.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(f"{name}:"))

    def growth(self, work):
        """The growth of the server's peak memory while `work` ran, in KiB."""
        # 5 resets the high-water mark to the current resident memory.
        with open(f"/proc/{self.server.pid}/clear_refs", "w", encoding="ascii") as marks:
            marks.write("5")
        before = self.status("VmRSS")
        work()
        return self.status("VmHWM") - before

    def check(self, what, work):
        grown = self.growth(work)
        print(f"  # {what}: {grown} KiB more at its highest", flush=True)
        assert grown < CURSOR_KIB_MAX, f"{what}: {grown} KiB"

    def close(self):
        self.client.close()
        self.server.stop()
        self.server.close()


def read(cursor):
    """Counts documents without making Python objects of them: only the server is measured."""
    count = 0
    for batch in cursor:
        count += batch.count(b"a text of some length\0")
    equal(count, DOCUMENTS)


@test
def a_cursor_over_a_million_documents_holds_little_memory(client):
    watched = Watched()
    try:
        equal(watched.c.estimated_document_count(), DOCUMENTS)
        c = watched.c
        watched.check("batches of 1,000", lambda: read(c.find_raw_batches(batch_size=1000)))
        # The default: 101 documents, then as much as fits in 16 MiB.
        watched.check("default batches", lambda: read(c.find_raw_batches()))
        watched.check("a filter", lambda: read(c.find_raw_batches({"k": {"$gte": 0}})))
        stages = [{"$match": {"_id": {"$gte": 0}}}, {"$set": {"x": {"$add": ["$k", 1]}}}]
        watched.check("a pipeline", lambda: read(c.aggregate_raw_batches(stages)))

        def open_many():
            cursors = [c.find(batch_size=10) for _ in range(200)]
            for cursor in cursors:
                next(cursor)
            equal(len({cursor.cursor_id for cursor in cursors}), 200)
            for cursor in cursors:
                cursor.close()

        watched.check("200 cursors at once", open_many)
    finally:
        watched.close()


if __name__ == "__main__":
    run(pymongo.MongoClient(os.environ["FROND_URI"], serverSelectionTimeoutMS=60_000))
