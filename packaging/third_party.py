"""Prints the licences of the libraries that are linked into the program, with the texts that their packages contain."""
import json
import pathlib
import subprocess


# Licences of libraries in C, which are inside their packages; of a header, the comments at its start.
INSIDE = {
    "pcre2-sys": ("upstream/include/pcre2.h", "upstream/deps/sljit/sljit_src/sljitLir.h"),
    "rquickjs-sys": ("quickjs/LICENSE",),
    "tikv-jemalloc-sys": ("jemalloc/COPYING",),
}


def command(*arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def main():
    metadata = json.loads(command("cargo", "metadata", "--format-version=1", "--locked", "--offline"))
    linked = set()
    tree = command("cargo", "tree", "--locked", "--offline", "-p", "frond", "-e", "normal", "--prefix=none", "--format={p}")
    for line in tree.splitlines():
        words = line.split()
        if len(words) >= 2:
            linked.add((words[0], words[1].removeprefix("v")))
    texts = {}
    for package in sorted(metadata["packages"], key=lambda one: (one["name"], one["version"])):
        name = (package["name"], package["version"])
        if name not in linked or package["source"] is None:
            continue
        print(f"{name[0]} {name[1]}: {package['license']} {package['repository'] or ''}".rstrip())
        folder = pathlib.Path(package["manifest_path"]).parent
        for file in sorted(folder.iterdir()):
            word = file.name.upper()
            if file.is_file() and word.startswith(("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")):
                text = file.read_text(encoding="utf-8", errors="replace").strip()
                texts.setdefault(text, []).append(f"{name[0]} {name[1]}")
        for inside in INSIDE.get(name[0], ()):
            text = (folder / inside).read_text(encoding="utf-8", errors="replace")
            if inside.endswith(".h"):
                text = text.partition("\n#ifndef")[0]
            texts.setdefault(text.strip(), []).append(f"{name[0]} {name[1]}")
    for text, names in texts.items():
        print("\n" + "=" * 100 + "\n" + ", ".join(names) + "\n\n" + text)


if __name__ == "__main__":
    main()
