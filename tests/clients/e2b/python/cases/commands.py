"""Commands: what comes back, and what they run in."""

import asyncio
import time

from e2b import AuthenticationException, CommandExitException, InvalidArgumentException, TimeoutException

from suite import case, equal, holds, raises, until


@case()
async def streams_and_exit_code_come_back(desk):
    sandbox = await desk.sandbox()
    result = await sandbox.commands.run("echo out; echo err >&2")
    equal((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 0), "result")
    holds(not result.error, f"the error is {result.error}")


@case()
async def an_exit_code_is_raised_with_the_streams(desk):
    sandbox = await desk.sandbox()
    error = await raises(CommandExitException, sandbox.commands.run("echo out; echo err >&2; exit 3"))
    equal((error.stdout, error.stderr, error.exit_code), ("out\n", "err\n", 3), "error")
    equal(error.error, "exit status 3", "reason")


@case()
async def exit_codes_are_those_of_a_shell(desk):
    sandbox = await desk.sandbox()
    for command, code in [("no-such-command-here", 127), ("exit 255", 255), ("false", 1), ("sh -c 'kill -TERM $$'; exit $?", 143)]:
        error = await raises(CommandExitException, sandbox.commands.run(command))
        equal(error.exit_code, code, f"exit code of {command}")


@case()
async def a_command_that_a_signal_ends_has_no_exit_code(desk):
    sandbox = await desk.sandbox()
    error = await raises(CommandExitException, sandbox.commands.run("kill -KILL $$"))
    equal((error.exit_code, error.error), (-1, "signal: killed"), "end")


@case()
async def a_command_that_needs_too_much_memory_says_so(desk):
    sandbox = await desk.sandbox()
    command = "exec python3 -c 'held = bytearray(3 << 30)'"
    error = await raises(CommandExitException, sandbox.commands.run(command, timeout=60))
    equal((error.exit_code, error.error.split(" (")[0]), (-1, "signal: killed"), "end")
    holds("out of memory" in error.error, f"the reason is {error.error!r}")


@case("roomy")
async def a_full_disk_kills_no_command_and_can_be_cleaned_up(desk):
    sandbox = await desk.sandbox("roomy")
    error = await raises(CommandExitException, sandbox.commands.run("head -c 2G /dev/zero > full", timeout=120))
    equal((error.exit_code, "No space left" in error.stderr), (1, True), "end")
    holds(int((await sandbox.commands.run("stat -c %s full")).stdout) > 256 << 20, "more than its memory was stored")
    await sandbox.commands.run("rm full; echo small > small")
    equal(await sandbox.files.read("small"), "small\n", "text")


@case()
async def output_is_told_while_it_comes(desk):
    sandbox = await desk.sandbox()
    out, err = [], []
    command = "echo one; sleep 0.7; echo two; echo oh >&2"
    result = await sandbox.commands.run(command, on_stdout=out.append, on_stderr=err.append)
    equal(("".join(out), "".join(err)), ("one\ntwo\n", "oh\n"), "what was told")
    holds(len(out) >= 2, f"it came as {out}")
    equal((result.stdout, result.stderr), ("one\ntwo\n", "oh\n"), "what came back")


@case("async")
async def a_callback_may_be_awaited(desk):
    sandbox = await desk.sandbox()
    heard = []

    async def hear(text):
        await asyncio.sleep(0)
        heard.append(text)

    await sandbox.commands.run("echo heard", on_stdout=hear)
    equal("".join(heard), "heard\n", "what was told")


@case()
async def text_of_all_scripts_survives(desk):
    sandbox = await desk.sandbox()
    equal((await sandbox.commands.run("echo 'größe 漢字 🙂'")).stdout, "größe 漢字 🙂\n", "text")
    equal((await sandbox.commands.run(r"printf 'a\377b'")).stdout, "a\ufffdb", "broken text")


@case(limit_sec=120)
async def two_megabytes_of_output_come_whole(desk):
    sandbox = await desk.sandbox()
    result = await sandbox.commands.run("seq 1 300000; seq 1 20000 >&2", timeout=100)
    equal(result.stdout, "".join(f"{n}\n" for n in range(1, 300001)), "output")
    equal(result.stderr, "".join(f"{n}\n" for n in range(1, 20001)), "errors")


@case()
async def quotes_and_newlines_reach_the_shell_as_they_are(desk):
    sandbox = await desk.sandbox()
    result = await sandbox.commands.run("cat <<'END'\nit's \"$HOME\" `x` \\n\nEND\n")
    equal(result.stdout, "it's \"$HOME\" `x` \\n\n", "output")


@case()
async def a_large_command_arrives_whole(desk):
    sandbox = await desk.sandbox()
    result = await sandbox.commands.run(f"cat <<'END' | wc -c\n{'x' * 100_000}\nEND\n")
    equal(result.stdout.strip(), "100001", "length")


@case("users")
async def commands_begin_in_the_home_of_their_user(desk):
    sandbox = await desk.sandbox()
    equal((await sandbox.commands.run("pwd; echo $HOME; whoami")).stdout, "/home/user\n/home/user\nuser\n", "user")


@case("users")
async def a_command_can_be_roots(desk):
    sandbox = await desk.sandbox()
    result = await sandbox.commands.run("pwd; echo $HOME; whoami; id -u", user="root")
    equal(result.stdout, "/root\n/root\nroot\n0\n", "root")


@case("users")
async def root_changes_what_the_user_cannot(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run("echo secret > /root/note && chmod 600 /root/note", user="root")
    await raises(CommandExitException, sandbox.commands.run("cat /root/note"))
    await sandbox.commands.run("cp /root/note /home/user/note && chown user /home/user/note", user="root")
    equal((await sandbox.commands.run("cat note; stat -c %U note")).stdout, "secret\nuser\n", "output")


@case()
async def an_unknown_user_is_refused(desk):
    sandbox = await desk.sandbox()
    await raises(AuthenticationException, sandbox.commands.run("true", user="stranger"))


@case()
async def a_command_begins_where_it_is_told(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir("/home/user/a place")
    for told, expected in [("/tmp", "/tmp"), ("/home/user/a place", "/home/user/a place"), ("a place", "/home/user/a place")]:
        equal((await sandbox.commands.run("pwd", cwd=told)).stdout, f"{expected}\n", f"place for {told}")


@case()
async def a_place_that_is_not_there_is_refused(desk):
    sandbox = await desk.sandbox()
    await raises(InvalidArgumentException, sandbox.commands.run("pwd", cwd="/no/such/place"), "cwd '/no/such/place' does not exist")


@case()
async def variables_of_the_sandbox_and_of_the_command_are_there(desk):
    sandbox = await desk.sandbox(envs={"KEPT": "sandbox", "CHANGED": "sandbox"})
    strange = 'it\'s "$HOME" ü'
    result = await sandbox.commands.run(
        'printf "%s|%s|%s" "$KEPT" "$CHANGED" "$STRANGE"', envs={"CHANGED": "command", "STRANGE": strange}
    )
    equal(result.stdout, f"sandbox|command|{strange}", "variables")
    equal((await sandbox.commands.run('echo "$CHANGED[$STRANGE]"')).stdout, "sandbox[]\n", "the next command")


@case()
async def a_command_can_tell_where_it_runs(desk):
    sandbox = await desk.sandbox()
    result = await sandbox.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID")
    equal(result.stdout, f"true {sandbox.sandbox_id}\n", "variables")


@case()
async def nothing_is_to_be_read_unless_asked_for(desk):
    sandbox = await desk.sandbox()
    equal((await sandbox.commands.run("cat; echo end", timeout=20)).stdout, "end\n", "output")


@case()
async def files_stay_and_variables_do_not(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run("echo kept > note; export LOST=1; cd /tmp")
    equal((await sandbox.commands.run('cat note; pwd; echo "[$LOST]"')).stdout, "kept\n/home/user\n[]\n", "output")


@case()
async def a_command_out_of_time_is_ended(desk):
    sandbox = await desk.sandbox()
    begun = time.monotonic()
    await raises(TimeoutException, sandbox.commands.run("sleep 321", timeout=1))
    holds(time.monotonic() - begun < 15, "it did not wait for the command")

    async def ended():
        # The brackets keep the pattern from finding itself.
        found = await sandbox.commands.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 32[1]' || true")
        return found.stdout == "0\n"

    await until(ended, "the command is gone")
    equal(await sandbox.commands.list(), [], "commands")


@case()
async def a_time_of_zero_is_no_limit(desk):
    sandbox = await desk.sandbox()
    equal((await sandbox.commands.run("sleep 1; echo end", timeout=0)).stdout, "end\n", "output")


@case()
async def many_commands_run_at_the_same_time(desk):
    sandbox = await desk.sandbox()
    results = await asyncio.gather(*(sandbox.commands.run(f"sleep 0.2; echo {n}") for n in range(10)))
    equal([it.stdout for it in results], [f"{n}\n" for n in range(10)], "what they say")


@case("git")
async def git_works_by_the_package(desk):
    sandbox = await desk.sandbox()
    place = "/home/user/project"
    await sandbox.git.init(place, initial_branch="trunk")
    await sandbox.git.configure_user("Ada", "ada@example.com")
    await sandbox.files.write(f"{place}/readme", "hello\n")
    await sandbox.git.add(place)
    await sandbox.git.commit(place, "begin")
    status = await sandbox.git.status(place)
    equal((status.current_branch, status.is_clean), ("trunk", True), "status")


@case("since-2.63")
async def output_need_not_be_kept(desk):
    sandbox = await desk.sandbox()
    heard = []
    result = await sandbox.commands.run("echo heard", on_stdout=heard.append, retain_output=False)
    equal(("".join(heard), result.stdout, result.exit_code), ("heard\n", None, 0), "result")
