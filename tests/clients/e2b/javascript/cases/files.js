// Files and directories.

import { createHash, randomBytes } from "node:crypto";
import { AuthenticationError, FileNotFoundError, InvalidArgumentError } from "e2b";
import { equal, holds, raises, test } from "../suite.js";

const HOME = "/home/user";
const PLACE = `${HOME}/place`;
const sum = (data) => createHash("sha256").update(data).digest("hex");
const buffer = (data) => data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);

test("files/text_is_written_and_read", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const info = await sandbox.files.write(`${HOME}/größe 漢字.txt`, "größe 🙂\r\n");
  equal([info.name, info.path, info.type], ["größe 漢字.txt", `${HOME}/größe 漢字.txt`, "file"], "what was written");
  equal(await sandbox.files.read(`${HOME}/größe 漢字.txt`), "größe 🙂\r\n", "text");
});

test("files/bytes_are_written_and_read_in_every_form", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const data = randomBytes(300_000);
  const streamed = new Blob([data]).stream();
  for (const [name, body] of [["buffer", buffer(data)], ["blob", new Blob([data])], ["stream", streamed]]) {
    await sandbox.files.write(`${HOME}/${name}`, body);
    equal(sum(await sandbox.files.read(`${HOME}/${name}`, { format: "bytes" })), sum(data), `bytes of ${name}`);
  }
  const blob = await sandbox.files.read(`${HOME}/buffer`, { format: "blob" });
  equal(sum(Buffer.from(await blob.arrayBuffer())), sum(data), "bytes as a blob");
  const pieces = [];
  for await (const piece of await sandbox.files.read(`${HOME}/buffer`, { format: "stream" })) pieces.push(piece);
  equal(sum(Buffer.concat(pieces)), sum(data), "bytes as a stream");
});

test("files/an_empty_file_is_a_file", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write(`${HOME}/empty`, "");
  equal(await sandbox.files.read(`${HOME}/empty`), "", "text");
  equal((await sandbox.files.getInfo(`${HOME}/empty`)).size, 0, "size");
});

test("files/five_megabytes_go_and_come_unchanged", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const data = randomBytes(5 * 1024 * 1024);
  await sandbox.files.write(`${HOME}/large`, buffer(data));
  equal((await sandbox.commands.run("sha256sum large | cut -d' ' -f1")).stdout.trim(), sum(data), "sum inside");
  equal(sum(await sandbox.files.read(`${HOME}/large`, { format: "bytes" })), sum(data), "sum outside");
});

test("files/several_files_are_written_at_once", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const entries = [
    { path: `${PLACE}/one.txt`, data: "1" },
    { path: `${PLACE}/sub dir/größe.txt`, data: new Blob(["2"]) },
  ];
  equal((await sandbox.files.write(entries)).map((it) => it.path), entries.map((it) => it.path), "paths");
  equal(await sandbox.files.read(entries[1].path), "2", "second");
});

test("files/files_can_travel_compressed", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const text = "again and again\n".repeat(20_000);
  await sandbox.files.write(`${HOME}/note`, text, { gzip: true });
  equal((await sandbox.commands.run("wc -c < note")).stdout.trim(), String(text.length), "bytes");
  holds((await sandbox.files.read(`${HOME}/note`, { gzip: true })) === text, "the text comes back");
});

test("files/a_file_keeps_its_metadata_until_it_is_written_again", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const told = async () => (await sandbox.files.getInfo(`${HOME}/note`)).metadata ?? {};
  await sandbox.files.write(`${HOME}/note`, "1", { metadata: { author: "Ada" } });
  equal(await told(), { author: "Ada" }, "metadata");
  await sandbox.files.write(`${HOME}/note`, "2");
  equal(await told(), {}, "metadata after a second write");
});

test("files/a_missing_file_is_not_found", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await raises(FileNotFoundError, sandbox.files.read(`${HOME}/missing`));
  await raises(FileNotFoundError, sandbox.files.getInfo(`${HOME}/missing`));
  await raises(FileNotFoundError, sandbox.files.list(`${HOME}/missing`));
  await raises(FileNotFoundError, sandbox.files.rename(`${HOME}/missing`, `${HOME}/new`));
  equal(await sandbox.files.exists(`${HOME}/missing`), false, "exists");
});

test("files/a_directory_is_no_file", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.makeDir(PLACE);
  await raises(InvalidArgumentError, sandbox.files.read(PLACE));
  await raises(InvalidArgumentError, sandbox.files.write(PLACE, "x"));
});

test("files/an_unknown_user_has_no_files", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await raises(AuthenticationError, sandbox.files.write("/tmp/x", "x", { user: "stranger" }));
});

test("files/a_directory_is_made_once", [], async (desk) => {
  const sandbox = await desk.sandbox();
  equal([await sandbox.files.makeDir(`${PLACE}/a/b`), await sandbox.files.makeDir(`${PLACE}/a/b`)], [true, false], "made");
});

test("files/a_list_is_as_deep_as_asked_for", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write([
    { path: `${PLACE}/a.txt`, data: "a" },
    { path: `${PLACE}/sub/b.txt`, data: "b" },
    { path: `${PLACE}/sub/deep/c.txt`, data: "c" },
  ]);
  const names = async (options) => (await sandbox.files.list(PLACE, options)).map((it) => it.path.slice(PLACE.length + 1));
  equal(await names(), ["a.txt", "sub"], "depth 1");
  equal(await names({ depth: 2 }), ["a.txt", "sub", "sub/b.txt", "sub/deep"], "depth 2");
});

test("files/entries_say_what_they_are", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write(`${PLACE}/file`, "12345");
  await sandbox.commands.run(`cd ${PLACE} && chmod 640 file && ln -s file link`);
  const file = await sandbox.files.getInfo(`${PLACE}/file`);
  equal([file.type, file.size, file.permissions, file.owner], ["file", 5, "-rw-r-----", "user"], "file");
  holds(Math.abs(file.modifiedTime.getTime() - Date.now()) < 60_000, `time is ${file.modifiedTime}`);
  const link = await sandbox.files.getInfo(`${PLACE}/link`);
  equal(link.symlinkTarget, `${PLACE}/file`, "target of the link");
  equal((await sandbox.files.getInfo(PLACE)).type, "dir", "type");
});

test("files/files_are_renamed_and_removed", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write(`${PLACE}/old`, "kept");
  const info = await sandbox.files.rename(`${PLACE}/old`, `${PLACE}/on/the/way/new`);
  equal([info.name, info.path], ["new", `${PLACE}/on/the/way/new`], "entry");
  equal(await sandbox.files.read(`${PLACE}/on/the/way/new`), "kept", "text");
  await sandbox.files.remove(`${PLACE}/on`);
  equal(await sandbox.files.list(PLACE), [], "list");
  await sandbox.files.remove(`${PLACE}/on`);
});
