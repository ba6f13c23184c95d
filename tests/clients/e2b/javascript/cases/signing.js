// Addresses of files, used without the package.

import { equal, test } from "../suite.js";

const PATH = "/home/user/größe of it.txt";

function form(content) {
  const data = new FormData();
  data.append("file", new Blob([content]), "file");
  return data;
}

test("signing/a_file_is_downloaded_by_its_address", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write(PATH, "content");
  for (const options of [{}, { useSignatureExpiration: 60 }, { user: "root" }]) {
    const answer = await fetch(await sandbox.downloadUrl(PATH, options));
    equal([answer.status, await answer.text()], [200, "content"], `answer with ${JSON.stringify(options)}`);
  }
});

test("signing/a_file_is_uploaded_to_its_address", [], async (desk) => {
  const sandbox = await desk.sandbox();
  for (const options of [{}, { useSignatureExpiration: 60 }]) {
    const text = `from a browser ${JSON.stringify(options)}`;
    const answer = await fetch(await sandbox.uploadUrl(PATH, options), { method: "POST", body: form(text) });
    equal([answer.status, (await answer.json())[0].path], [200, PATH], "answer");
    equal(await sandbox.files.read(PATH), text, "text");
  }
});

test("signing/a_wrong_signature_opens_nothing", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write(PATH, "content");
  const spoil = (url) => {
    const spoiled = new URL(url);
    spoiled.searchParams.set("signature", `v1_${"A".repeat(43)}`);
    return spoiled;
  };
  equal((await fetch(spoil(await sandbox.downloadUrl(PATH)))).status, 401, "status of a download");
  const upload = await fetch(spoil(await sandbox.uploadUrl(PATH)), { method: "POST", body: form("x") });
  equal(upload.status, 401, "status of an upload");
  equal(await sandbox.files.read(PATH), "content", "text");
});

test("signing/an_address_whose_time_is_over_opens_nothing", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write(PATH, "content");
  const answer = await fetch(await sandbox.downloadUrl(PATH, { useSignatureExpiration: -5 }));
  equal([answer.status, (await answer.json()).code], [401, 401], "answer");
});
