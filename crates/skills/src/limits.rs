//! Bounds on what a stranger may put into a skill or an archive.

/// Longest name of a skill, in characters.
pub const NAME_CHARS_MAX: usize = 64;
/// Longest name of one file or directory, as Linux has it.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Longest path within a package or an archive.
pub const PATH_BYTES_MAX: usize = 1024;
/// Most directories on the way to a file.
pub const PATH_DEPTH_MAX: usize = 32;

/// Largest text file that is read or written, `SKILL.md` included.
pub const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Largest front matter.
pub const FRONT_MATTER_BYTES_MAX: usize = 64 << 10;
/// Deepest nesting in a front matter.
pub const FRONT_MATTER_DEPTH_MAX: usize = 16;
/// Most values in a front matter.
pub const FRONT_MATTER_NODES_MAX: usize = 4096;
/// Most anchors, and most aliases, in a front matter.
pub const FRONT_MATTER_ALIASES_MAX: usize = 32;
/// Most that aliases may add to a front matter, in parser events.
pub const FRONT_MATTER_REPLAYED_MAX: usize = 4096;

/// How deep below the root of a store packages are looked for.
pub const STORE_DEPTH_MAX: usize = 6;
/// How deep packages are looked for in a directory that is scanned, and in an archive.
pub const SCAN_DEPTH_MAX: usize = 2;
/// Most packages that a store shows.
pub const PACKAGES_MAX: usize = 1000;
/// Most names that are looked at in one directory.
pub const DIRECTORY_ENTRIES_MAX: usize = 10_000;
/// Most names examined below one directory of the store; a directory with more counts as broken. The bound is per
/// directory, so that a box that fills its own package with garbage hides no other package.
pub const SCAN_ENTRIES_MAX: usize = 1000;
/// Most text that one list of skills carries.
pub const LIST_TEXT_BYTES_MAX: usize = 16 << 20;

/// Entries of a directory that are listed unless the caller says otherwise.
pub const LISTED_ENTRIES_DEFAULT: u64 = 200;
/// Most entries of a directory that are listed, whatever the caller says.
pub const LISTED_ENTRIES_MAX: u64 = 1000;

/// Largest archive.
pub const ZIP_BYTES_MAX: usize = 20 << 20;
/// Most entries in an archive.
pub const ZIP_ENTRIES_MAX: usize = 512;
/// Most files and directories that come out of an archive, those that are only part of a path included.
pub const ZIP_NODES_MAX: usize = 2048;
/// Largest file in an archive.
pub const ZIP_ENTRY_BYTES_MAX: u64 = 16 << 20;
/// Most that comes out of an archive.
pub const ZIP_TOTAL_BYTES_MAX: u64 = 64 << 20;
/// Most bytes that come out for each byte that went in, for each file and for the whole archive.
pub const ZIP_RATIO_MAX: u64 = 100;
/// Longest comment of an archive. Tools put the name of a commit there.
pub const ZIP_COMMENT_BYTES_MAX: usize = 1024;

/// Characters of a stranger's value that an error repeats.
pub const QUOTED_CHARS_MAX: usize = 200;
/// Candidates that an error names.
pub const CANDIDATES_SHOWN_MAX: usize = 20;
