use proptest::prelude::*;

use super::*;

const TYPE: &str = "multipart/form-data; boundary=cut";

/// What is read of a form that comes in pieces of so many bytes: heads, and the bytes of each part together.
fn read(bytes: &[u8], piece_bytes: usize) -> Result<Vec<(PartHead, Vec<u8>)>, FormError> {
    let mut form = Form::new(TYPE)?;
    let mut parts: Vec<(PartHead, Vec<u8>)> = Vec::new();
    let mut pieces = bytes.chunks(piece_bytes);
    loop {
        match form.next()? {
            Some(Piece::Head(head)) => parts.push((head, Vec::new())),
            Some(Piece::Bytes(bytes)) => parts.last_mut().unwrap().1.extend_from_slice(&bytes),
            Some(Piece::PartEnd) => {}
            Some(Piece::End) => return Ok(parts),
            None => form.push(pieces.next().ok_or(FormError::Short)?),
        }
    }
}

fn part(name: &str, file_name: Option<&str>, bytes: &[u8]) -> (PartHead, Vec<u8>) {
    (PartHead { name: name.to_owned(), file_name: file_name.map(str::to_owned) }, bytes.to_vec())
}

/// A form as clients write it.
fn written(parts: &[(PartHead, Vec<u8>)]) -> Vec<u8> {
    let mut form = Vec::new();
    for (head, bytes) in parts {
        let file = head.file_name.as_ref().map(|name| format!("; filename=\"{}\"", name.replace('"', "%22")));
        let line = format!("Content-Disposition: form-data; name=\"{}\"{}", head.name, file.unwrap_or_default());
        form.extend_from_slice(format!("--cut\r\n{line}\r\nContent-Type: text/plain\r\n\r\n").as_bytes());
        form.extend_from_slice(bytes);
        form.extend_from_slice(b"\r\n");
    }
    form.extend_from_slice(b"--cut--\r\n");
    form
}

#[test]
fn file_names_are_paths_and_stay_as_they_were_sent() {
    for name in ["/home/user/a/b.txt", "../x", "ä b/ü.txt", "a\"b", "a;b=c", "C:\\x", "%20", ""] {
        let parts = [part("file", Some(name), b"text")];
        assert_eq!(read(&written(&parts), 7).unwrap(), parts, "{name}");
    }
}

#[test]
fn parts_are_read_wherever_the_pieces_end() {
    let almost = b"\r\n--cu\r\n\r\n--cux\r--cut\n--cut--";
    let parts = [part("file", Some("/a"), almost), part("note", None, b""), part("file", Some("/b"), b"\r\n")];
    let form = written(&parts);
    for piece_bytes in 1..form.len() {
        assert_eq!(read(&form, piece_bytes).unwrap(), parts, "{piece_bytes}");
    }
    assert_eq!(read(b"--cut--", 1).unwrap(), []);
    assert_eq!(read(b"nothing\r\n--cut-- and nothing", 3).unwrap(), []);
}

#[test]
fn heads_are_understood_in_every_common_form() {
    let head = |line: &str| PartHead::parse(format!("X: y\r\n{line}").as_bytes());
    for (line, name, file_name) in [
        ("Content-Disposition: form-data; name=\"file\"", "file", None),
        ("content-disposition:form-data;name=file;filename=a.txt", "file", Some("a.txt")),
        ("CONTENT-DISPOSITION: form-data; filename=\"x\"; name=\"file\"", "file", Some("x")),
        (r#"Content-Disposition: form-data; name="file"; filename="a\"b\\c\d""#, "file", Some("a\"b\\c\\d")),
        ("Content-Disposition: form-data; name=\"file\"; filename*=utf-8''x", "file", None),
    ] {
        let expected = PartHead { name: name.to_owned(), file_name: file_name.map(str::to_owned) };
        assert_eq!(head(line).unwrap(), expected, "{line}");
    }
    for bad in ["", "Content-Disposition: form-data", "Content-Disposition: form-data; name=\"open", "Name: x"] {
        assert_eq!(head(bad), Err(FormError::Head), "{bad}");
    }
    assert_eq!(PartHead::parse(b"\xff"), Err(FormError::Head));
}

#[test]
fn what_is_no_form_is_refused() {
    let long = vec![b'x'; FORM_HEAD_BYTES_MAX + 100];
    let head = [&b"--cut\r\nContent-Disposition: form-data; name="[..], &long].concat();
    let many = written(&vec![part("x", None, b""); FORM_PARTS_MAX + 1]);
    for (bytes, error) in [
        (&b""[..], FormError::Short),
        (b"--cut\r\nContent-Disposition: form-data; name=x\r\n\r\nhalf", FormError::Short),
        (b"--cutter\r\n", FormError::Delimiter),
        (b"--cut-x", FormError::Delimiter),
        (&long, FormError::Long),
        (&head, FormError::Long),
        (&many, FormError::Many),
        (b"--cut\r\n\r\nbytes", FormError::Head),
    ] {
        assert_eq!(read(bytes, 64), Err(error), "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
    }
}

#[test]
fn what_is_too_long_is_so_however_it_is_cut() {
    let spaced = |count: usize| [&b"--cut"[..], &vec![b' '; count], b"\r\n"].concat();
    let named = |count: usize| {
        let start = b"--cut\r\nContent-Disposition: form-data; name=";
        let name = vec![b'n'; count - (start.len() - b"--cut".len())];
        [&start[..], &name, b"\r\n\r\n\r\n--cut--"].concat()
    };
    let before = |count: usize| [&vec![b'x'; count - 2], &b"\r\n--cut--"[..]].concat();
    let max = FORM_HEAD_BYTES_MAX;
    for (bytes, is_long) in [
        (named(max), false),
        (named(max + 1), true),
        (before(max), false),
        (before(max + 1), true),
        (spaced(max), false),
        (spaced(max + 1), true),
    ] {
        for piece_bytes in [1, 7, 1000, bytes.len()] {
            let error = read(&bytes, piece_bytes).err();
            assert_eq!(error == Some(FormError::Long), is_long, "{piece_bytes}: {error:?}");
        }
    }
}

#[test]
fn only_types_with_a_boundary_are_forms() {
    let quoted = "multipart/form-data; charset=utf-8; boundary=\"a b\"";
    assert_eq!(Form::new(quoted).unwrap().delimiter, b"\r\n--a b");
    let long = format!("multipart/form-data; boundary={}", "x".repeat(FORM_BOUNDARY_BYTES_MAX + 1));
    for bad in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; x=y", &long] {
        assert_eq!(Form::new(bad).unwrap_err(), FormError::Boundary, "{bad}");
    }
}

proptest! {
    #[test]
    fn whatever_is_written_is_read(
        contents in proptest::collection::vec("[-cut\r\nx]{0,40}", 0..4),
        piece_bytes in 1_usize..50,
    ) {
        let parts: Vec<_> = contents.iter()
            .filter(|content| !content.contains("\r\n--cut"))
            .map(|content| part("file", Some("/x"), content.as_bytes()))
            .collect();
        prop_assert_eq!(read(&written(&parts), piece_bytes).unwrap(), parts);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in "[-cut\r\n :;=\"A-D]{0,200}", piece_bytes in 1_usize..50) {
        let _ = read(bytes.as_bytes(), piece_bytes);
    }
}
