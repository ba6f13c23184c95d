"""Skill packages by the client's own methods."""

import io
import os
import zipfile

from langbot_plugin.box.errors import BoxValidationError

from link import VERSION
from suite import case, equal, holds, raises

# Long enough for several parts of an upload, and not so regular that it looks like a bomb.
LARGE = "".join(f"{n * n * 7919 % 99991} " for n in range(10_000))
FIELDS = {
    "name",
    "display_name",
    "description",
    "instructions",
    "package_root",
    "entry_file",
    "created_at",
    "updated_at",
}


def skill(name: str, **more) -> dict:
    return {"name": name, "display_name": "A skill", "description": "does things", "instructions": "Be kind.\n"} | more


def archive(files: dict[str, str]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as target:
        for path, text in files.items():
            target.writestr(path, text)
    return memory.getvalue()


def manifest(name: str, text: str = "hello\n") -> str:
    return f"---\nname: {name}\ndescription: zd\nextra: kept\n---\n\n{text}"


def own_name(box, label: str) -> str:
    """Clients without tenancy share one store."""
    return f"{label}_{box.prefix}"


@case("skills")
async def a_skill_is_created_read_updated_and_deleted(box, ground):
    name = own_name(box, "kind")
    made = await box.create_skill(skill(name))
    holds(FIELDS <= set(made), f"fields are {set(made)}")
    equal((made["name"], made["display_name"], made["instructions"].strip()), (name, "A skill", "Be kind."), "skill")
    holds(os.path.isabs(made["package_root"]) and made["entry_file"] == "SKILL.md", f"skill is {made}")
    equal((await box.get_skill(name))["description"], "does things", "description")
    changed = await box.update_skill(name, {"display_name": "New", "description": "other", "instructions": "Be brief."})
    equal((changed["display_name"], changed["instructions"].strip()), ("New", "Be brief."), "changed skill")
    holds(name in [it["name"] for it in await box.list_skills()], "the skill is not listed")
    equal(await box.raw("box_delete_skill", {"name": name}), {"deleted": name}, "answer to delete")
    equal(await box.get_skill(name), None, "a deleted skill")


@case("skills")
async def bad_names_and_doubles_are_refused(box, ground):
    name = own_name(box, "one")
    await raises(BoxValidationError, box.create_skill(skill("")), "required")
    await raises(BoxValidationError, box.create_skill(skill("a/../b")), "can only contain")
    await raises(BoxValidationError, box.create_skill(skill("x" * 65)), "64 characters")
    await box.create_skill(skill(name))
    await raises(BoxValidationError, box.create_skill(skill(name)), "already exists")
    await raises(BoxValidationError, box.update_skill(name, {"name": "other"}), "Renaming skills is not supported")
    await raises(BoxValidationError, box.update_skill(own_name(box, "missing"), {"description": "x"}))
    await raises(BoxValidationError, box.delete_skill(own_name(box, "missing")))
    await box.delete_skill(name)


@case("skills")
async def files_of_a_skill_are_listed_read_and_written(box, ground):
    name = own_name(box, "files")
    await box.create_skill(skill(name))
    written = await box.write_skill_file(name, "scripts/deep/run.py", "print('ü')\n")
    equal(
        (written["skill"], written["path"], written["bytes_written"]),
        ({"name": name}, "scripts/deep/run.py", 12),
        "answer",
    )
    equal((await box.read_skill_file(name, "scripts/deep/run.py"))["content"], "print('ü')\n", "content")
    await box.write_skill_file(name, ".hidden", "x")
    listed = await box.list_skill_files(name)
    equal([(it["name"], it["is_dir"]) for it in listed["entries"]], [("SKILL.md", False), ("scripts", True)], "entries")
    holds(listed["truncated"] is False, "truncated")
    hidden = await box.list_skill_files(name, include_hidden=True)
    holds(".hidden" in [it["name"] for it in hidden["entries"]], f"entries are {hidden['entries']}")
    equal((await box.list_skill_files(name, max_entries=1))["truncated"], True, "truncated")
    equal([it["path"] for it in (await box.list_skill_files(name, "scripts"))["entries"]], ["scripts/deep"], "paths")
    for path in ["../outside", "/etc/passwd", "scripts/../../x"]:
        await raises(BoxValidationError, box.read_skill_file(name, path))
        await raises(BoxValidationError, box.write_skill_file(name, path, "x"))
    await raises(BoxValidationError, box.read_skill_file(name, "missing"))
    await box.delete_skill(name)


@case("skills")
async def links_in_a_skill_lead_nowhere(box, ground):
    name = own_name(box, "links")
    made = await box.create_skill(skill(name))
    os.symlink("/etc/passwd", os.path.join(made["package_root"], "passwd"))
    await raises(BoxValidationError, box.read_skill_file(name, "passwd"))
    await raises(BoxValidationError, box.write_skill_file(name, "passwd", "x"))
    await box.delete_skill(name)


@case("skills")
async def a_directory_is_scanned(box, ground):
    name = own_name(box, "scanned")
    made = await box.create_skill(skill(name))
    found = await box.scan_skill_directory(made["package_root"])
    equal((found["name"], found["package_root"]), (name, made["package_root"]), "skill")
    await raises(BoxValidationError, box.scan_skill_directory("/nowhere/at/all"))
    await box.delete_skill(name)


@case("skills", "legacy")
async def a_skill_that_was_prepared_in_the_workspace_is_registered(box, ground):
    """`register_skill` of LangBot up to 4.10.6: scan the directory that the agent wrote, and create a skill from it."""
    place = os.path.join(ground.directory, box.name("host"))
    name = own_name(box, "registered")
    write = "mkdir -p own/data && printf '%s' \"$TEXT\" > own/SKILL.md && echo data > own/data/file"
    result = await box.run(write, host_path=place, workdir="/workspace", env={"TEXT": manifest(name)})
    equal((result.exit_code, result.stderr), (0, ""), "preparing it")
    package = os.path.join(place, "own")
    found = await box.scan_skill_directory(package)
    equal((found["name"], found["package_root"]), (name, package), "scanned")
    fields = {it: found[it] for it in ["display_name", "description", "instructions"]}
    made = await box.create_skill({"name": name, "package_root": package} | fields)
    holds(made["package_root"] != package and made["instructions"] == "hello\n", f"the skill is {made}")
    equal((await box.read_skill_file(name, "data/file"))["content"], "data\n", "a file of it")
    await box.delete_skill(name)
    holds(os.path.isfile(os.path.join(package, "SKILL.md")), "deleting the skill removed what it was made from")
    for outside in ["/etc", "/root"]:
        await raises(BoxValidationError, box.scan_skill_directory(outside), "blocked for security")
    await raises(BoxValidationError, box.create_skill({"name": name, "package_root": "/srv"}), "cannot be used")


@case("skills")
async def a_zip_is_previewed_and_installed(box, ground):
    name = own_name(box, "zipped")
    data = archive({"top/SKILL.md": manifest(name), "top/data/large.txt": LARGE, "top/requirements.txt": "six\n"})
    found = await box.preview_skill_zip(data, "my skill.zip", target_suffix=box.prefix)
    equal([it["name"] for it in found], [name], "preview")
    holds("source_path" in found[0], f"the preview is {found}")
    made = await box.install_skill_zip(data, "my skill.zip", target_suffix=box.prefix)
    equal([(it["name"], it["description"], it["instructions"]) for it in made], [(name, "zd", "hello\n")], "installed")
    equal(os.path.basename(made[0]["package_root"]), f"my-skill-{box.prefix}", "directory")
    equal((await box.read_skill_file(name, "data/large.txt"))["content"], LARGE, "a file of it")
    call = box.install_skill_zip(data, "my skill.zip", target_suffix=box.prefix)
    await raises(BoxValidationError, call, "already exists")
    await box.delete_skill(name)


@case("skills")
async def any_file_name_of_a_zip_becomes_a_name(box, ground):
    name = own_name(box, "named")
    data = archive({"SKILL.md": manifest(name)})
    for filename in [f"../../{box.prefix}.zip", f"C:/Users/me/{box.prefix}.zip"]:
        made = await box.install_skill_zip(data, filename, target_suffix="upload")
        equal(os.path.basename(made[0]["package_root"]), f"{box.prefix}-upload", filename)
        await box.delete_skill(name)


async def worded(awaitable, text: str):
    """Holds that a call is refused with exactly this text, as LangBot shows it."""
    mark = "BoxValidationError: "
    error = await raises(BoxValidationError, awaitable, mark)
    equal(str(error).split(mark, 1)[1], text, "text")


@case("skills")
async def errors_are_worded_as_langbot_shows_them(box, ground):
    name, other = own_name(box, "worded"), own_name(box, "other")
    letters = "Skill name can only contain letters, numbers, hyphens and underscores"
    await worded(box.create_skill(skill("")), "Skill name is required")
    await worded(box.create_skill(skill("a b")), letters)
    await worded(box.create_skill(skill("x" * 65)), "Skill name cannot exceed 64 characters")
    await worded(box.delete_skill(name), f'Skill "{name}" not found')
    made = await box.create_skill(skill(name))
    root = made["package_root"]
    store = os.path.dirname(root)
    await worded(box.create_skill(skill(name)), f'Skill with name "{name}" already exists')
    os.mkdir(os.path.join(store, other))
    await worded(box.create_skill(skill(other)), f"Skill directory already exists: {os.path.join(store, other)}")
    os.rmdir(os.path.join(store, other))
    await worded(box.update_skill(name, {"name": other}), "Renaming skills is not supported")
    fixed = "Updating package_root is not supported; recreate the skill to import a different package"
    await worded(box.update_skill(name, {"package_root": store}), fixed)
    await worded(box.read_skill_file(name, "missing"), "Skill file not found: missing")
    await worded(box.list_skill_files(name, "missing"), "Skill directory not found: missing")
    await worded(box.read_skill_file(name, "/etc/passwd"), "path must be relative to the skill package root")
    await worded(box.write_skill_file(name, "../x", "x"), "path must stay within the skill package root")
    os.symlink("/etc/passwd", os.path.join(root, "passwd"))
    await worded(box.read_skill_file(name, "passwd"), "path must stay within the skill package root")
    with open(os.path.join(root, "binary"), "wb") as file:
        file.write(b"\xff\xfe")
    is_of_0_4 = VERSION.startswith("0.4.")
    text = "Skill file is not valid UTF-8 text: binary" if is_of_0_4 else "Skill file binary is not valid UTF-8 text"
    await worded(box.read_skill_file(name, "binary"), text)
    for number in [0, -1]:
        call = box.list_skill_files(name, max_entries=number)
        await worded(call, "max_entries must be a positive integer")
    missing = os.path.join(store, box.prefix)
    await worded(box.scan_skill_directory(missing), f"Directory does not exist: {missing}")
    empty = os.path.join(store, own_name(box, "empty"))
    os.mkdir(empty)
    text = f"No SKILL.md found in {empty} or its subdirectories (max depth: 2)"
    await worded(box.scan_skill_directory(empty), text)
    os.rmdir(empty)
    both = archive({"a/SKILL.md": manifest(own_name(box, "a")), "b/SKILL.md": manifest(own_name(box, "b"))})
    given = {"filename": "both.zip", "target_suffix": box.prefix}
    text = "Multiple skills found. Please choose one or more source_paths: a, b"
    await worded(box.install_skill_zip(both, **given), text)
    call = box.install_skill_zip(both, **given, source_paths=["c"])
    await worded(call, 'Invalid source_path "c". Available: a, b')
    await worded(box.preview_skill_zip(b"", **given), "Uploaded file is empty")
    await worded(box.preview_skill_zip(b"this is no zip", **given), "Uploaded file must be a valid .zip archive")
    unsafe = archive({"../evil/SKILL.md": manifest("evil")})
    await worded(box.preview_skill_zip(unsafe, **given), "Archive contains an unsafe path: ../evil/SKILL.md")
    await box.delete_skill(name)


@case("skills")
async def several_skills_in_a_zip_need_a_choice(box, ground):
    one, two = own_name(box, "one"), own_name(box, "two")
    data = archive({"a/SKILL.md": manifest(one), "b/SKILL.md": manifest(two)})
    equal({it["name"] for it in await box.preview_skill_zip(data, "both.zip")}, {one, two}, "preview")
    suffix = box.prefix
    await raises(
        BoxValidationError, box.install_skill_zip(data, "both.zip", target_suffix=suffix), "Multiple skills found"
    )
    call = box.install_skill_zip(data, "both.zip", source_paths=["c"], target_suffix=suffix)
    await raises(BoxValidationError, call, "Invalid source_path")
    made = await box.install_skill_zip(data, "both.zip", source_paths=["a", "b"], target_suffix=suffix)
    equal({it["name"] for it in made}, {one, two}, "installed")
    for name in [one, two]:
        await box.delete_skill(name)


@case("skills")
async def bad_zips_are_refused(box, ground):
    suffix = box.prefix
    table = [
        (b"", "Uploaded file is empty"),
        (b"this is no zip", "Uploaded file must be a valid .zip archive"),
        (archive({"README.md": "nothing"}), "No SKILL.md found"),
        (archive({"../evil/SKILL.md": manifest("evil")}), "Archive contains an unsafe path"),
        (archive({"/abs/SKILL.md": manifest("evil")}), "Archive contains an unsafe path"),
    ]
    for data, text in table:
        await raises(BoxValidationError, box.preview_skill_zip(data, "bad.zip", target_suffix=suffix), text)
        await raises(BoxValidationError, box.install_skill_zip(data, "bad.zip", target_suffix=suffix), text)


@case("skills")
async def an_upload_can_be_used_once(box, ground):
    name = own_name(box, "once")
    key = await box.link.handler.send_file(archive({"SKILL.md": manifest(name)}), "zip")
    request = {"file_key": key, "filename": "once.zip", "source_subdir": "", "target_suffix": box.prefix}
    equal((await box.raw("box_preview_skill_zip", request, 60))["skills"][0]["name"], name, "preview")
    try:
        await box.raw("box_preview_skill_zip", request, 60)
    except Exception:
        return
    raise AssertionError("the upload was used twice")


@case("skills")
async def a_file_key_is_a_name_and_never_a_path(box, ground):
    chunk = {"file_length": 1, "chunk_base64": "eA==", "chunk_index": 0, "chunk_amount": 1, "chunk_size": 1}
    for key in ["../../evil.zip", "/tmp/evil.zip", "a/b.zip", "", ".."]:
        try:
            await box.raw("__file_chunk", chunk | {"file_key": key}, context=None)
        except Exception:
            continue
        raise AssertionError(f"the key {key!r} was taken")


@case("skills", "tenancy")
async def skills_belong_to_their_workspace(box, ground):
    other = box.link.box()
    await box.create_skill(skill("mine"))
    equal(await other.list_skills(), [], "skills of another workspace")
    equal(await other.get_skill("mine"), None, "a skill of another workspace")
    await other.create_skill(skill("mine", description="of another"))
    equal((await box.get_skill("mine"))["description"], "does things", "description")
