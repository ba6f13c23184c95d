//! What a tool answers. A model reads it: `ok` says whether it worked, `notice` what is missing and how to get it.

use box_wire::file_op::{Cut, Lines, Match};
use box_wire::{FileError, limits as wire_limits};
use serde_json::{Value, json};

use crate::call::{ExecResult, ExecStatus};
use crate::code::{CodeError, CodeResult, CodeStatus, DisplayValue};
use crate::limits;
use crate::session::SessionId;

/// How a command ended and what it said. The names of the fields are those that LangBot's agents know.
pub(super) fn of_exec(result: ExecResult) -> Value {
    let info = result.info;
    let exit_code = info.shell_code().filter(|_| info.status == ExecStatus::Completed);
    let stderr = match info.status {
        ExecStatus::TimedOut if result.stderr.is_empty() => info.timeout_message(),
        _ => result.stderr,
    };
    let mut answer = json!({
        "ok": exit_code == Some(0),
        "session_id": info.session_id,
        "backend": info.backend_name,
        "exec_id": info.exec_id,
        "status": info.status,
        "exit_code": exit_code,
        "stdout": result.stdout,
        "stderr": stderr,
        "stdout_truncated": result.stdout_truncated,
        "stderr_truncated": result.stderr_truncated,
        "oom_killed": info.oom_killed,
        "duration_ms": info.duration_ms,
        "timeout_sec": info.timeout_ms.map(|ms| ms / 1000),
    });
    tell(&mut answer, info.memory_notice().map(str::to_owned).into_iter().chain(info.deadline_notice()));
    answer
}

/// How code ended and what it said and displayed.
pub(super) fn of_code(result: &CodeResult) -> Value {
    let mut answer = json!({
        "ok": result.status == CodeStatus::Completed,
        "session_id": result.session_id,
        "status": result.status,
        "language": result.language,
        "execution_count": result.execution_count,
        "text": result.text(),
        "stdout": result.stdout,
        "stderr": result.stderr,
        "stdout_truncated": result.stdout_truncated,
        "stderr_truncated": result.stderr_truncated,
        "duration_ms": result.duration_ms,
    });
    let displayed: Vec<_> =
        result.results.iter().filter(|shown| !shown.is_main_result).filter_map(DisplayValue::plain_text).collect();
    if !displayed.is_empty() {
        answer["displayed"] = json!(displayed);
    }
    if let Some(error) = &result.error {
        let CodeError { name, value, traceback } = error;
        let code = if result.status == CodeStatus::TimedOut { "timed_out" } else { "code_failed" };
        answer["error"] = json!({ "code": code, "message": format!("{name}: {value}"), "traceback": traceback });
    }
    let (mut images, mut bytes, mut dropped) = (Vec::new(), 0, result.results_dropped);
    for (media_type, data) in result.results.iter().filter_map(DisplayValue::image) {
        bytes += data.len();
        if bytes > limits::TOOL_IMAGES_BYTES_MAX || images.len() >= limits::TOOL_IMAGES_MAX {
            dropped += 1;
        } else {
            images.push(json!({ "media_type": media_type, "data": data }));
        }
    }
    if !images.is_empty() {
        answer["images"] = images.into();
    }
    let notice = format!("{dropped} displayed values are left out because they are too many or too large.");
    tell(&mut answer, (dropped > 0).then_some(notice));
    answer
}

/// An answer for a reader who sees text only.
pub(super) fn without_images(mut answer: Value) -> Value {
    let images = answer.as_object_mut().and_then(|answer| answer.remove("images"));
    if let Some(count) = images.as_ref().and_then(Value::as_array).map(Vec::len) {
        let notice = format!("{count} displayed images are left out; write them to files to keep them.");
        let before = answer["notice"].as_str().map(|before| format!("{before} ")).unwrap_or_default();
        answer["notice"] = format!("{before}{notice}").into();
    }
    answer
}

/// What could not be done with a file. Nothing was.
pub(super) fn of_file_error(session: &SessionId, error: &FileError) -> Value {
    failed(session, error.code.as_str(), &error.message)
}

/// Something that whoever wrote the parameters can set right.
pub(super) fn failed(session: &SessionId, code: &str, message: &str) -> Value {
    json!({"ok": false, "session_id": session, "error": {"code": code, "message": message}})
}

/// Lines of a file.
pub(super) fn of_lines(session: &SessionId, path: &str, lines: &Lines) -> Value {
    let next = lines.first.saturating_add(lines.count);
    let notice = match lines.cut {
        // Only the first line is ever told in part.
        Some(Cut::Bytes) if lines.count <= 1 && !lines.text.ends_with('\n') => Some(format!(
            "Line {} is longer than {} KiB, and only its beginning is here; look at the rest with exec, such as cut -c or head -c. \
             What follows it is read with offset {next}.",
            lines.first,
            limits::TOOL_TEXT_BYTES_MAX >> 10
        )),
        Some(Cut::Lines | Cut::Bytes) => {
            Some(format!("This is not all. Lines {next} and following were left out; read on with offset {next}."))
        }
        None if lines.count == 0 && lines.first > 1 => {
            lines.total.map(|total| format!("The file has only {total} lines."))
        }
        None => None,
    };
    let mut result = json!({
        "ok": true,
        "session_id": session,
        "path": path,
        "content": lines.text,
        "first_line": lines.first,
        "lines": lines.count,
        "total_lines": lines.total,
        "truncated": lines.cut.is_some(),
    });
    tell(&mut result, notice);
    result
}

/// A file that was written.
pub(super) fn of_write(session: &SessionId, path: &str, bytes: usize) -> Value {
    json!({"ok": true, "session_id": session, "path": path, "bytes": bytes})
}

/// A file that was changed.
pub(super) fn of_edit(session: &SessionId, path: &str, replacements: u64) -> Value {
    json!({"ok": true, "session_id": session, "path": path, "replacements": replacements})
}

/// Files that were found.
pub(super) fn of_glob(session: &SessionId, paths: &[String], truncated: bool) -> Value {
    let mut result = json!({
        "ok": true, "session_id": session, "paths": paths, "count": paths.len(), "truncated": truncated,
    });
    let count = paths.len();
    let notice = format!("There are more than these {count} files; use a narrower pattern or a path further down.");
    tell(&mut result, truncated.then_some(notice));
    result
}

/// Lines that were found.
pub(super) fn of_grep(session: &SessionId, matches: &[Match], truncated: bool, skipped: u64) -> Value {
    let shown: Vec<Value> = matches.iter().map(of_match).collect();
    let mut result = json!({
        "ok": true, "session_id": session, "matches": shown, "count": matches.len(), "truncated": truncated,
        "skipped_files": skipped,
    });
    let more = truncated.then(|| {
        format!("There are more than these {} lines; use a narrower pattern, path or include.", matches.len())
    });
    let skipped = (skipped > 0).then(|| format!("{skipped} files could not be searched to their end."));
    tell(&mut result, more.into_iter().chain(skipped));
    result
}

fn of_match(one: &Match) -> Value {
    let text: String = one.text.chars().take(wire_limits::MATCH_CHARS_MAX).collect();
    json!({"path": one.path, "line": one.line, "text": text})
}

/// Adds what a model has to know besides.
fn tell(result: &mut Value, notices: impl IntoIterator<Item = String>) {
    let notices: Vec<String> = notices.into_iter().collect();
    if !notices.is_empty() {
        result["notice"] = notices.join(" ").into();
    }
}

/// Adds the names of parameters that changed nothing.
pub(super) fn with_ignored(mut result: Value, ignored: Vec<String>) -> Value {
    if !ignored.is_empty() {
        result["ignored_parameters"] = ignored.into();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BackendName;
    use crate::call::ExecInfo;
    use box_wire::Program;

    fn ended(change: impl FnOnce(&mut ExecResult)) -> Value {
        let program = Program::Shell("true".to_owned());
        let info = ExecInfo::started("e".parse().unwrap(), "s".parse().unwrap(), BackendName::Native, &program);
        let timeout_ms = Some(30_000);
        let info = ExecInfo { status: ExecStatus::Completed, exit_code: Some(0), duration_ms: 5, timeout_ms, ..info };
        let mut result = ExecResult {
            info,
            stdout: "hello world".to_owned(),
            stderr: String::new(),
            stdout_truncated: false,
            stderr_truncated: false,
        };
        change(&mut result);
        of_exec(result)
    }

    #[test]
    fn a_lack_of_memory_is_told_in_words() {
        let result = ended(|result| (result.info.signal, result.info.oom_killed) = (Some(9), true));
        assert!(result["notice"].as_str().unwrap().starts_with("Out of memory: "), "{result}");
        assert!(ended(|_| {}).get("notice").is_none());
    }

    #[test]
    fn a_result_has_the_fields_that_agents_know() {
        let result = ended(|_| {});
        let known = ["ok", "session_id", "backend", "status", "exit_code", "stdout", "stderr", "stdout_truncated"];
        for field in known.iter().chain(&["stderr_truncated", "duration_ms"]) {
            assert!(result.get(field).is_some(), "{field}");
        }
        assert_eq!(
            (&result["ok"], &result["status"], &result["backend"]),
            (&json!(true), &json!("completed"), &json!("native"))
        );
        assert_eq!((&result["stdout"], &result["stdout_truncated"]), (&json!("hello world"), &json!(false)));
    }

    #[test]
    fn only_a_command_that_returned_0_is_well() {
        let failed = ended(|result| result.info.exit_code = Some(3));
        assert_eq!((&failed["ok"], &failed["exit_code"]), (&json!(false), &json!(3)));
        let killed = ended(|result| (result.info.exit_code, result.info.signal) = (None, Some(9)));
        assert_eq!((&killed["ok"], &killed["exit_code"]), (&json!(false), &json!(137)));
        let late = ended(|result| (result.info.status, result.info.exit_code) = (ExecStatus::TimedOut, None));
        assert_eq!(
            (&late["ok"], &late["status"], &late["exit_code"]),
            (&json!(false), &json!("timed_out"), &json!(null))
        );
        assert_eq!(
            (&late["stderr"], &late["timeout_sec"]),
            (&json!("Command timed out after 30 seconds."), &json!(30))
        );
        assert!(late.get("notice").is_none(), "a larger timeout_sec helps: {late}");
    }

    #[test]
    fn the_limit_of_a_deadline_is_told_when_it_cut_one_or_time_ran_out() {
        let notice = |status, cut: Option<&str>| {
            let answer = ended(|result| {
                (result.info.status, result.info.oom_killed) = (status, true);
                (result.info.timeout_limit, result.info.timeout_cut) = (Some("a limit".into()), cut.map(str::to_owned));
            });
            answer["notice"].as_str().unwrap().ends_with(". The deadline cannot be longer: a limit.")
        };
        assert!(notice(ExecStatus::Completed, Some("a limit")));
        assert!(notice(ExecStatus::TimedOut, None));
        assert!(!notice(ExecStatus::Completed, None));
    }

    fn lines(first: u64, count: u64, total: Option<u64>, cut: Option<Cut>) -> Value {
        let lines = Lines { text: "a\n".to_owned(), first, count, total, cut };
        of_lines(&"s".parse().unwrap(), "/workspace/f", &lines)
    }

    #[test]
    fn what_was_left_out_is_told_with_how_to_get_it() {
        assert_eq!(lines(1, 3, Some(3), None).get("notice"), None);
        let cut = lines(11, 2000, None, Some(Cut::Lines));
        assert!(cut["notice"].as_str().unwrap().contains("offset 2011"), "{cut}");
        assert_eq!((&cut["truncated"], &cut["total_lines"]), (&json!(true), &json!(null)));
        assert!(lines(1, 1, None, Some(Cut::Bytes))["notice"].as_str().unwrap().contains("offset 2"));
        let part = Lines { text: "aa".to_owned(), first: 3, count: 1, total: None, cut: Some(Cut::Bytes) };
        let part = of_lines(&"s".parse().unwrap(), "/workspace/f", &part);
        assert!(part["notice"].as_str().unwrap().starts_with("Line 3 is longer"), "{part}");
        assert!(lines(9, 0, Some(3), None)["notice"].as_str().unwrap().contains("only 3 lines"));
        let session = "s".parse().unwrap();
        assert!(of_glob(&session, &["a".to_owned()], true)["notice"].as_str().unwrap().contains("more than these 1"));
        assert_eq!(of_glob(&session, &[], false).get("notice"), None);
        let grep = of_grep(&session, &[], false, 2);
        assert_eq!(
            (&grep["notice"], &grep["count"]),
            (&json!("2 files could not be searched to their end."), &json!(0))
        );
    }

    #[test]
    fn file_error_is_a_word_and_a_sentence() {
        let error = FileError::new(box_wire::FileErrorCode::NoMatch, "it is not there");
        let told = of_file_error(&"s".parse().unwrap(), &error);
        assert_eq!(
            told,
            json!({"ok": false, "session_id": "s", "error": {"code": "no_match", "message": "it is not there"}})
        );
    }
}
