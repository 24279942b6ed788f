"""Checks an OCI layout against the image specification: https://github.com/opencontainers/image-spec, version 1."""
import gzip
import hashlib
import io
import json
import pathlib
import re
import tarfile

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def need(condition, what):
    if not condition:
        raise AssertionError(what)


class Layout:
    """An image layout whose index names one image."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        version = json.loads((self.folder / "oci-layout").read_text())
        need(version == {"imageLayoutVersion": "1.0.0"}, version)
        self.index = json.loads((self.folder / "index.json").read_text())
        need(self.index["schemaVersion"] == 2 and self.index["mediaType"] == INDEX, "index.json")
        need(len(self.index["manifests"]) == 1, "one image")
        self.seen = set()
        entry = self.index["manifests"][0]
        self.manifest = json.loads(self.blob(entry, MANIFEST))
        need(self.manifest["schemaVersion"] == 2 and self.manifest["mediaType"] == MANIFEST, "manifest")
        self.config = json.loads(self.blob(self.manifest["config"], CONFIG))
        self.layers = [gzip.decompress(self.blob(layer, LAYER)) for layer in self.manifest["layers"]]
        self.check_config(entry)
        stored = {f"sha256:{path.name}" for path in (self.folder / "blobs" / "sha256").iterdir()}
        need(stored == self.seen, "every blob is used")

    def blob(self, descriptor, media_type):
        """The bytes that a descriptor names, which must have its size and digest."""
        need(descriptor["mediaType"] == media_type, descriptor)
        need(re.fullmatch(r"sha256:[0-9a-f]{64}", descriptor["digest"]), descriptor)
        data = (self.folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        need(len(data) == descriptor["size"], descriptor)
        need(hashlib.sha256(data).hexdigest() == descriptor["digest"].split(":")[1], descriptor)
        self.seen.add(descriptor["digest"])
        return data

    def check_config(self, entry):
        config = self.config
        need(config["os"] == "linux" and config["architecture"] in ("amd64", "arm64"), "platform")
        need(entry["platform"] == {"os": config["os"], "architecture": config["architecture"]}, "platform of the index")
        need(TIME.fullmatch(config["created"]), config["created"])
        need(config["rootfs"]["type"] == "layers", "rootfs")
        digests = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in self.layers]
        need(config["rootfs"]["diff_ids"] == digests, "diff_ids")
        filled = [one for one in config["history"] if not one.get("empty_layer")]
        need(len(filled) == len(self.layers), "history")
        run = config["config"]
        need(isinstance(run["Entrypoint"], list) and isinstance(run["Cmd"], list), "commands are lists")
        for port, value in run["ExposedPorts"].items():
            need(re.fullmatch(r"\d+/(tcp|udp)", port) and value == {}, port)
        for volume, value in run["Volumes"].items():
            need(volume.startswith("/") and value == {}, volume)
        for name, value in self.manifest["annotations"].items():
            need("." in name and isinstance(value, str), name)

    def check_docker(self):
        """What older versions of `docker load` read."""
        (image,) = json.loads((self.folder / "manifest.json").read_text())
        path = lambda one: "blobs/" + one["digest"].replace(":", "/")
        need(image["Config"] == path(self.manifest["config"]), "Config")
        need(image["Layers"] == [path(layer) for layer in self.manifest["layers"]], "Layers")

    def check_files(self):
        """Names, owners and modes of the files in the layers, which a container runtime unpacks as they are."""
        names = {}
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                for entry in archive:
                    need(not entry.name.startswith("/") and ".." not in entry.name.split("/"), entry.name)
                    need(entry.isdir() or entry.isfile(), entry.name)
                    parent = entry.name.rpartition("/")[0]
                    need(not parent or parent in names, f"{entry.name} comes before its folder")
                    names[entry.name] = entry
        user = int(self.config["config"]["User"].split(":")[0])
        need(user != 0, "the user is not root")
        for volume in self.config["config"]["Volumes"]:
            entry = names[volume.lstrip("/")]
            need(entry.uid == user and entry.mode & 0o200, f"{volume} can be written")
        program = names[self.config["config"]["Entrypoint"][0].lstrip("/")]
        need(program.mode & 0o111 and program.uid == 0, "the program")

    def unpack(self, folder):
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                archive.extractall(folder, numeric_owner=True, filter="fully_trusted")
