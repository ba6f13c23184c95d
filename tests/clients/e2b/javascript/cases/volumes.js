// Directories that outlive sandboxes.

import {
  AuthenticationError,
  SandboxError,
  Volume,
  VolumeError,
  VolumeNotFoundError,
  VolumePathNotFoundError,
} from "e2b";
import { equal, holds, raises, test } from "../suite.js";

const MOUNTED = "/mnt/data";
const USER = 1000;

test("volumes/a_volume_is_made_found_listed_and_removed", [], async (desk) => {
  const volume = await desk.volume();
  const { volumeId, name, token } = volume;
  const found = await Volume.getInfo(volumeId);
  equal([found.volumeId, found.name, found.token], [volumeId, name, token], "info");
  equal((await Volume.connect(volumeId)).token, token, "connected");
  holds((await Volume.list()).some((it) => it.volumeId === volumeId && it.name === name), "it is not listed");
  await raises(VolumeError, Volume.create(name), "409");
  await raises(VolumeError, Volume.create("a b"), "400");
  equal([await Volume.destroy(volumeId), await Volume.destroy(volumeId)], [true, false], "removed");
  await raises(VolumeNotFoundError, Volume.getInfo(volumeId));
});

test("volumes/files_are_written_and_read_in_every_form", [], async (desk) => {
  const volume = await desk.volume();
  const written = await volume.writeFile("/note.txt", "größe 漢字");
  equal([written.name, written.path, written.type, written.size], ["note.txt", "/note.txt", "file", 14], "written");
  holds(written.mtime instanceof Date, "it has a time");
  equal(await volume.readFile("/note.txt"), "größe 漢字", "text");
  equal(new TextDecoder().decode(await volume.readFile("/note.txt", { format: "bytes" })), "größe 漢字", "bytes");
  equal(await (await volume.readFile("/note.txt", { format: "blob" })).text(), "größe 漢字", "blob");
  const stream = await volume.readFile("/note.txt", { format: "stream" });
  equal(await new Response(stream).text(), "größe 漢字", "stream");
  await volume.writeFile("/streamed", new Blob(["a".repeat(1_000_000)]).stream());
  equal((await volume.readFile("/streamed")).length, 1_000_000, "length of what was streamed");
  await raises(VolumePathNotFoundError, volume.readFile("/none"));
  equal([await volume.exists("/note.txt"), await volume.exists("/none")], [true, false], "exists");
});

test("volumes/directories_are_made_listed_and_removed", [], async (desk) => {
  const volume = await desk.volume();
  equal((await volume.makeDir("/a")).type, "directory", "type");
  await raises(VolumePathNotFoundError, volume.makeDir("/x/y"));
  await volume.makeDir("/a/b/c", { force: true });
  equal((await volume.list("/")).map((it) => it.path), ["/a"], "list");
  equal((await volume.list("/", { depth: 3 })).map((it) => it.path).sort(), ["/a", "/a/b", "/a/b/c"], "levels");
  await volume.remove("/a");
  equal(await volume.list("/"), [], "after that");
  await raises(VolumePathNotFoundError, volume.remove("/a"));
});

test("volumes/owners_and_bits_can_be_changed", [], async (desk) => {
  const volume = await desk.volume();
  const root = await volume.writeFile("/file", "x", { uid: 0, gid: 0, mode: 0o600 });
  equal([root.uid, root.gid, root.mode & 0o777], [0, 0, 0o600], "written for root");
  const given = await volume.updateMetadata("/file", { uid: USER, mode: 0o644 });
  equal([given.uid, given.gid, given.mode & 0o777], [USER, 0, 0o644], "given to user");
  await raises(VolumeError, volume.updateMetadata("/file", { uid: 12 }), "400");
});

test("volumes/sandboxes_have_the_same_files_one_after_the_other", [], async (desk) => {
  const volume = await desk.volume();
  await volume.writeFile("/from-outside", "hello");
  const first = await desk.sandbox({ volumeMounts: { [MOUNTED]: volume } });
  equal((await first.getInfo()).volumeMounts, [{ name: volume.name, path: MOUNTED }], "mounts");
  equal(await first.files.read(`${MOUNTED}/from-outside`), "hello", "a file from outside");
  await first.commands.run(`echo root > ${MOUNTED}/root`, { user: "root" });
  await first.commands.run(`echo user > ${MOUNTED}/user`);
  await raises(VolumeError, Volume.destroy(volume.volumeId), "409");
  await first.kill();
  const second = await desk.sandbox({ volumeMounts: { "/home/user/data": volume.name } });
  equal((await second.commands.run("cat data/*")).stdout, "helloroot\nuser\n", "in another sandbox");
  equal(await volume.readFile("/root"), "root\n", "from outside");
});

test("volumes/what_cannot_be_is_refused", [], async (desk) => {
  const volume = await desk.volume();
  await raises(SandboxError, desk.sandbox({ volumeMounts: { [MOUNTED]: `none-${desk.mark}` } }), "404");
  await raises(SandboxError, desk.sandbox({ volumeMounts: { "/etc/x": volume.name } }), "400", "volumeMounts");
  const closed = new Volume(volume.volumeId, volume.name, "0".repeat(64));
  await raises(AuthenticationError, closed.list("/"));
});
