"""Writes a container image as an OCI layout: https://github.com/opencontainers/image-spec, version 1.

The image has one layer with the program, a user, and an empty directory for the data.
"""
import argparse
import datetime
import gzip
import hashlib
import io
import json
import pathlib
import tarfile

USER = 10001
# What is in the layer beside the program. Nothing else is needed: the program is static.
PASSWD = f"root:x:0:0:root:/root:/sbin/nologin\nfrond:x:{USER}:{USER}:Frond:/data/db:/sbin/nologin\n"
GROUP = f"root:x:0:\nfrond:x:{USER}:\n"


def layer(program, time):
    """The bytes of the layer as a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:

        def add(name, mode, data=None, owner=0):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime, entry.uid, entry.gid = mode, time, owner, owner
            if data is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))

        add("data", 0o755)
        add("data/db", 0o700, owner=USER)
        add("etc", 0o755)
        add("etc/group", 0o644, GROUP.encode())
        add("etc/passwd", 0o644, PASSWD.encode())
        add("tmp", 0o1777)
        add("usr", 0o755)
        add("usr/bin", 0o755)
        add("usr/bin/frond", 0o755, program)
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", default="")
    parser.add_argument("--architecture", required=True)
    parser.add_argument("--time", type=int, required=True)
    options = parser.parse_args()
    blobs = options.out / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    created = datetime.datetime.fromtimestamp(options.time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def blob(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def document(content, media_type):
        return blob(json.dumps(content, separators=(",", ":"), sort_keys=True).encode(), media_type)

    annotations = {
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": "Document database that speaks MongoDB's wire protocol",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.title": "frond",
        "org.opencontainers.image.version": options.version,
    }
    if options.revision:
        annotations["org.opencontainers.image.revision"] = options.revision
    tar = layer(options.program.read_bytes(), options.time)
    contents = blob(gzip.compress(tar, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
    config = document(
        {
            "created": created,
            "architecture": options.architecture,
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "ExposedPorts": {"27017/tcp": {}},
                "Env": ["PATH=/usr/bin"],
                "Entrypoint": ["/usr/bin/frond"],
                "Cmd": ["serve", "--dbpath", "/data/db", "--bind_ip_all"],
                "Volumes": {"/data/db": {}},
                "WorkingDir": "/data/db",
                "StopSignal": "SIGTERM",
                "Labels": annotations,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
            "history": [{"created": created, "created_by": "scripts/package-oci.sh"}],
        },
        "application/vnd.oci.image.config.v1+json",
    )
    manifest = document(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [contents],
            "annotations": annotations,
        },
        "application/vnd.oci.image.manifest.v1+json",
    )
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                **manifest,
                "platform": {"architecture": options.architecture, "os": "linux"},
                "annotations": {
                    "org.opencontainers.image.ref.name": options.version,
                    "io.containerd.image.name": f"docker.io/library/frond:{options.version}",
                },
            }
        ],
    }
    (options.out / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (options.out / "index.json").write_text(json.dumps(index, separators=(",", ":")))
    # For versions of `docker load` that do not know OCI layouts.
    path = lambda one: "blobs/" + one["digest"].replace(":", "/")
    old = [{"Config": path(config), "RepoTags": [f"frond:{options.version}"], "Layers": [path(contents)]}]
    (options.out / "manifest.json").write_text(json.dumps(old))


if __name__ == "__main__":
    main()
