"""Commands: what comes back, what is kept, what ends them."""

import asyncio

from langbot_plugin.box.errors import BoxSessionNotFoundError, BoxValidationError
from langbot_plugin.box.models import BoxExecutionStatus

from suite import case, equal, holds, raises

CLIP_BYTES = 1048576


@case()
async def streams_and_exit_code_come_back(box, ground):
    result = await box.run("echo out; echo err >&2; exit 3")
    equal((result.stdout, result.stderr, result.exit_code), ("out", "err", 3), "result")
    equal(result.status, BoxExecutionStatus.COMPLETED, "status")
    equal(result.session_id, box.name("s"), "session_id")
    holds(result.ok is False and result.duration_ms >= 0 and result.backend_name, f"result is {result}")


@case()
async def surrounding_blanks_are_stripped_and_inner_ones_kept(box, ground):
    result = await box.run(r"printf '\n\n  a\n\n  b \n\n'; printf '\t e \n' >&2")
    equal((result.stdout, result.stderr), ("a\n\n  b", "e"), "streams")


@case()
async def text_of_all_scripts_and_broken_text_survive(box, ground):
    result = await box.run("echo 'größe 漢字 🙂'")
    equal(result.stdout, "größe 漢字 🙂", "text")
    result = await box.run(r"printf 'a\377b'")
    equal(result.stdout, "a\ufffdb", "broken text")


@case()
async def files_stay_and_environment_and_directory_do_not(box, ground):
    await box.run("mkdir -p /tmp/d; cd /tmp/d; echo kept > f; export LOST=1", env={"A": "1"})
    result = await box.run('cat /tmp/d/f; pwd; echo "[$LOST][$A]"')
    equal(result.stdout, "kept\n/tmp\n[][]", "second command")


@case()
async def environment_reaches_the_command_as_it_is(box, ground):
    env = {"A": "1", "B": "two words", "QUOTED": 'it\'s "$HOME" `x`', "UMLAUT": "ä"}
    result = await box.run('printf "%s|%s|%s|%s" "$A" "$B" "$QUOTED" "$UMLAUT"', env=env)
    equal(result.stdout, "|".join(env.values()), "environment")


@case()
async def a_working_directory_is_made(box, ground):
    result = await box.run("pwd", workdir="/tmp/made for/this")
    equal((result.exit_code, result.stdout), (0, "/tmp/made for/this"), "result")


@case()
async def standard_input_is_empty(box, ground):
    equal((await box.run("cat; echo end")).stdout, "end", "output")


@case()
async def exit_codes_are_those_of_a_shell(box, ground):
    equal((await box.run("no-such-command-here")).exit_code, 127, "not found")
    equal((await box.run("kill -9 $$")).exit_code, 137, "killed")
    equal((await box.run("sh -c 'kill -TERM $$'; exit $?")).exit_code, 143, "terminated")


@case()
async def an_empty_command_is_refused_before_anything_else(box, ground):
    await raises(BoxValidationError, box.execute(box.spec("   ")), "cmd must not be empty")
    await raises(BoxSessionNotFoundError, box.get_session(box.name("s")))


@case()
async def a_command_out_of_time_ends_with_its_session(box, ground):
    result = await box.run("sleep 100", timeout_sec=1)
    equal((result.status, result.exit_code), (BoxExecutionStatus.TIMED_OUT, None), "result")
    equal((result.stdout, result.stderr), ("", "Command timed out after 1 seconds."), "streams")
    await raises(BoxSessionNotFoundError, box.get_session(box.name("s")), "not found")
    equal((await box.run("echo new")).stdout, "new", "the next command")


@case()
async def output_before_the_deadline_is_kept(box, ground):
    result = await box.run("echo partial; echo warned >&2; sleep 100", timeout_sec=1)
    equal((result.status, result.stdout, result.stderr), (BoxExecutionStatus.TIMED_OUT, "partial", "warned"), "result")


@case()
async def a_command_that_leaves_children_in_the_background_returns(box, ground):
    result = await box.run("sleep 50 >/dev/null 2>&1 & echo started")
    equal((result.exit_code, result.stdout), (0, "started"), "result")


@case(limit_sec=90)
async def long_output_is_clipped_with_a_notice(box, ground):
    result = await box.run(
        "head -c 1500000 /dev/zero | tr '\\0' x; head -c 1200000 /dev/zero | tr '\\0' y >&2", timeout_sec=60
    )
    for text, letter, total in [(result.stdout, "x", 1500000), (result.stderr, "y", 1200000)]:
        notice = f"\n... [raw output clipped at {CLIP_BYTES} bytes, {total - CLIP_BYTES} bytes discarded]"
        holds(text.endswith(notice), f"the end is {text[-120:]!r}")
        equal(len(text), CLIP_BYTES + len(notice), "length")
        equal(set(text[:CLIP_BYTES]), {letter}, "letters")


@case(limit_sec=90)
async def an_answer_that_grows_by_escaping_comes_whole(box, ground):
    """SDKs up to 0.4.14 take no message of more than 1 MiB, and 0.4.15 to 0.4.17 join none. Neither tells its version."""
    for _ in range(2):
        result = await box.run("head -c 900000 /dev/zero | tr '\\0' '\"'; head -c 300000 /dev/zero | tr '\\0' '\\\\' >&2")
        equal((len(result.stdout), set(result.stdout)), (900_000, {'"'}), "standard output")
        equal((len(result.stderr), set(result.stderr)), (300_000, {"\\"}), "standard error")
    equal((await box.run("echo alive")).stdout, "alive", "the next command")


@case()
async def output_in_the_hundreds_of_kilobytes_comes_whole(box, ground):
    result = await box.run("seq 1 60000")
    equal(result.stdout, "\n".join(str(n) for n in range(1, 60001)), "output")


@case()
async def escapes_quotes_and_multi_byte_text_survive_long_messages(box, ground):
    """Over stdio long messages are cut into parts; a part must neither grow too long by escaping nor cut a character."""
    unit = '"\\\u00e9\u6f22\U0001f642\t'
    result = await box.run(
        'i=0; while [ $i -lt 3000 ]; do printf "%s" "$UNIT"; i=$((i+1)); done; echo .', env={"UNIT": unit}
    )
    equal(result.stdout, unit * 3000 + ".", "output")


@case()
async def a_large_command_arrives_whole(box, ground):
    """More than 64 KiB: old clients send it in several messages, newer ones in fragments."""
    text = "x" * 100_000
    result = await box.run(f"cat > /tmp/big <<'END'\n{text}\nEND\nwc -c < /tmp/big")
    equal((result.exit_code, result.stdout.strip()), (0, "100001"), "result")


@case()
async def commands_of_one_session_run_one_after_the_other(box, ground):
    await box.run("rm -f /tmp/log")
    step = "echo begin >> /tmp/log; sleep 0.2; echo end >> /tmp/log"
    await asyncio.gather(*(box.run(step) for _ in range(4)))
    equal((await box.run("cat /tmp/log")).stdout.split(), ["begin", "end"] * 4, "order")


@case()
async def commands_of_different_sessions_run_at_the_same_time(box, ground):
    """Each waits for the other, over a directory that both see."""
    import os

    shared = os.path.join(ground.directory, box.name("shared"))
    os.makedirs(shared)
    script = "touch /workspace/$ME; while [ ! -e /workspace/$OTHER ]; do sleep 0.05; done; echo met"
    fields = {"host_path": shared, "workdir": "/workspace", "timeout_sec": 30}
    one = box.run(script, "a", env={"ME": "a", "OTHER": "b"}, **fields)
    two = box.run(script, "b", env={"ME": "b", "OTHER": "a"}, **fields)
    equal([result.stdout for result in await asyncio.gather(one, two)], ["met", "met"], "results")


@case()
async def two_hundred_commands_in_a_row_never_freeze_the_server(box, ground):
    """The original froze over stdio once its log had filled a pipe that nobody reads."""
    for number in range(200):
        result = await box.run(f"echo {number}")
        equal(result.stdout, str(number), "output")
