//! Where a box stores its files. Files in memory count as memory of the box, so too many of them would kill its commands.

use box_core::limits::{DISK_MB_DEFAULT, INODES_MIN, INODES_PER_DISK_MB};
use box_core::{BoxSpec, Error, Persistence, Result};

/// Part of a box's memory that files never use, so that a command in a full box can still remove some.
const RESERVE_PART: u64 = 4;
/// Lower bound of that part.
const RESERVE_MB_MIN: u64 = 16;
/// Kernel memory of one file in a tmpfs besides its contents, rounded as the kernel's own `BOGO_INODE_SIZE` is.
const FILE_KB: u64 = 1;
/// Upper bound of a divided place that is not the home.
const SIDE_MB_MAX: u64 = 256;
/// Least that such a place gets, unless an eighth of the room is less.
const SIDE_MB_MIN: u64 = 16;

/// Whether file system images can be mounted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// As root.
    Mountable,
    /// As an ordinary user.
    Refused,
}

/// Chooses storage that leaves memory for commands: memory if the size fits there, else disk. Without a requested size, or
/// with that of a mounted home, the size is what fits in memory.
pub fn settle(spec: &BoxSpec, images: Images) -> Result<BoxSpec> {
    spec.validate()?;
    let mut settled = spec.clone();
    let room_mb = room_mb(spec.memory_mb);
    let asked_mb = if spec.disk_mb == 0 { DISK_MB_DEFAULT } else { spec.disk_mb };
    match (spec.persistence, images) {
        (Persistence::Memory, _) if asked_mb <= room_mb => {}
        (Persistence::Memory, _) if spec.disk_mb == 0 || has_mounted_home(spec) => settled.disk_mb = room_mb,
        (Persistence::Memory | Persistence::Disk, Images::Mountable) => settled.persistence = Persistence::Disk,
        (Persistence::Disk, Images::Refused) => {
            return Err(refused("only root can mount a file system image", "keep the box in memory"));
        }
        (Persistence::Memory, Images::Refused) => {
            let reason = format!(
                "a disk of {asked_mb} MiB does not fit into {} MiB of memory beside a command, and only root can mount a file \
                 system image",
                spec.memory_mb
            );
            return Err(refused(&reason, &format!("ask for at most {room_mb} MiB of disk, or for more memory")));
        }
    }
    Ok(settled)
}

/// The largest disk that leaves memory for commands when its bytes and its files are all in use.
fn room_mb(memory_mb: u64) -> u64 {
    let free_kb = memory_mb.saturating_sub((memory_mb / RESERVE_PART).max(RESERVE_MB_MIN)) << 10;
    let by_ratio = free_kb / (1024 + INODES_PER_DISK_MB * FILE_KB);
    let beside_fewest_files = free_kb.saturating_sub(INODES_MIN * FILE_KB) >> 10;
    by_ratio.min(beside_fewest_files).max(1)
}

/// Storage of a box in which each work place is a file system of its own. Their sizes together leave memory for commands.
#[derive(Debug, Clone, Copy)]
pub struct Division {
    /// Places in memory besides the home.
    pub sides: u64,
    /// Size of storage in memory that is not for the workload.
    pub taken_mb: u64,
}

impl Division {
    /// Refuses a home that leaves too little to the other places: what does not fit cannot lie on disk with a limit here.
    pub fn check(&self, spec: &BoxSpec) -> Result<()> {
        spec.validate()?;
        let home_mb_max = self.home_mb_max(spec);
        if home_mb_max == 0 || asked_mb(spec) > home_mb_max {
            return Err(self.refused(spec, home_mb_max));
        }
        Ok(())
    }

    /// The sizes of all places. A home that is a mount hides its place, which then counts nothing.
    pub fn shares(&self, spec: &BoxSpec) -> Shares {
        let (room_mb, asked_mb) = (self.room_mb(spec), asked_mb(spec));
        let home_mb = match asked_mb {
            _ if !has_home_in_memory(spec) => 0,
            0 => (room_mb * 2 / 3).min(self.home_mb_max(spec)).clamp(1, DISK_MB_DEFAULT),
            asked_mb => asked_mb,
        };
        let side_mb = (room_mb.saturating_sub(home_mb) / self.sides.max(1)).clamp(1, SIDE_MB_MAX);
        let side_mb = if asked_mb == 0 { side_mb } else { side_mb.min(asked_mb) };
        Shares { home_mb: if home_mb == 0 { side_mb } else { home_mb }, side_mb }
    }

    fn home_mb_max(&self, spec: &BoxSpec) -> u64 {
        let room_mb = self.room_mb(spec);
        let side_mb = (room_mb / 8 / self.sides.max(1)).clamp(1, SIDE_MB_MIN);
        room_mb.saturating_sub(side_mb * self.sides)
    }

    fn room_mb(&self, spec: &BoxSpec) -> u64 {
        room_mb(spec.memory_mb).saturating_sub(self.taken_mb)
    }

    fn refused(&self, spec: &BoxSpec, home_mb_max: u64) -> Error {
        let less = format!("ask for at most {home_mb_max} MiB of disk, or for more memory");
        Error::MissingFacility {
            what: format!("a disk of {} MiB", spec.disk_bytes_max() >> 20),
            reason: format!(
                "it does not fit into {} MiB of memory beside a command and {} other places that can be written",
                spec.memory_mb, self.sides
            ),
            fix: if home_mb_max == 0 { "ask for more memory".to_owned() } else { less },
        }
    }
}

/// Sizes of divided places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// That of the home.
    pub home_mb: u64,
    /// That of each other place.
    pub side_mb: u64,
}

/// The size that was asked of a home in memory, or 0.
fn asked_mb(spec: &BoxSpec) -> u64 {
    if has_home_in_memory(spec) { spec.disk_mb } else { 0 }
}

/// Files of a divided place.
pub fn files_of(mb: u64) -> u64 {
    mb * INODES_PER_DISK_MB
}

fn has_home_in_memory(spec: &BoxSpec) -> bool {
    spec.persistence == Persistence::Memory && !has_mounted_home(spec)
}

/// A requested size is then that of the mount.
fn has_mounted_home(spec: &BoxSpec) -> bool {
    spec.mounts.iter().any(|mount| mount.target == spec.home)
}

fn refused(reason: &str, otherwise: &str) -> Error {
    Error::MissingFacility {
        what: "a box on disk".to_owned(),
        reason: reason.to_owned(),
        fix: format!("run strongbox as root, or {otherwise}"),
    }
}

#[cfg(test)]
mod tests {
    use box_core::mount_policy::Origin;
    use box_core::{MountMode, MountSpec, Profile};

    use super::*;

    fn spec(memory_mb: u64, disk_mb: u64, persistence: Persistence) -> BoxSpec {
        BoxSpec { memory_mb, disk_mb, persistence, ..Profile::default().spec() }
    }

    #[test]
    fn what_memory_has_no_room_for_lies_on_disk() {
        use Persistence::{Disk, Memory};
        for (memory_mb, disk_mb, asked, persistence, settled_mb) in [
            (512, 0, Memory, Memory, 307),
            (1024, 0, Memory, Memory, 0),
            (256, 0, Memory, Memory, 153),
            (32, 0, Memory, Memory, 12),
            (512, 307, Memory, Memory, 307),
            (512, 308, Memory, Disk, 308),
            (64, 2048, Memory, Disk, 2048),
            (64, 0, Disk, Disk, 0),
            (4096, 16, Disk, Disk, 16),
        ] {
            let settled = settle(&spec(memory_mb, disk_mb, asked), Images::Mountable).unwrap();
            let told = format!("{memory_mb} {disk_mb} {asked:?}");
            assert_eq!((settled.persistence, settled.disk_mb), (persistence, settled_mb), "{told}");
        }
    }

    #[test]
    fn who_cannot_have_an_image_is_told_what_fits() {
        let error = settle(&spec(512, 308, Persistence::Memory), Images::Refused).unwrap_err().to_string();
        for part in ["a disk of 308 MiB", "512 MiB of memory", "at most 307 MiB", "as root"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(settle(&spec(512, 307, Persistence::Memory), Images::Refused).is_ok());
        assert!(settle(&spec(512, 0, Persistence::Memory), Images::Refused).is_ok());
        assert!(settle(&spec(512, 0, Persistence::Disk), Images::Refused).is_err());
    }

    #[test]
    fn the_size_of_a_mounted_home_is_not_that_of_the_box() {
        let shared = mounted(spec(512, 4096, Persistence::Memory));
        for images in [Images::Mountable, Images::Refused] {
            let settled = settle(&shared, images).unwrap();
            assert_eq!((settled.persistence, settled.disk_mb), (Persistence::Memory, 307));
        }
    }

    #[test]
    fn bytes_and_files_together_leave_the_reserve() {
        for memory_mb in [32, 36, 40, 64, 100, 512, 1000, 4096, 1 << 20] {
            let spec = spec(memory_mb, room_mb(memory_mb), Persistence::Memory);
            let stored_kb = (spec.disk_bytes_max() >> 10) + spec.disk_inodes_max() * FILE_KB;
            let reserve_mb = (memory_mb / 4).max(16);
            assert!(stored_kb <= (memory_mb - reserve_mb) << 10, "{memory_mb}: {stored_kb}");
        }
    }

    fn mounted(mut spec: BoxSpec) -> BoxSpec {
        let (source, target) = ("/srv".into(), spec.home.clone());
        spec.mounts.push(MountSpec { source, target, mode: MountMode::Rw, origin: Origin::Operator });
        spec
    }

    #[test]
    fn divided_places_share_what_one_storage_would_have() {
        use Persistence::{Disk, Memory};
        for (spec, sides, taken_mb, home_mb, side_mb) in [
            (spec(512, 0, Memory), 2, 0, 204, 51),
            (spec(512, 0, Memory), 4, 0, 204, 25),
            (spec(512, 0, Memory), 2, 64, 162, 40),
            (spec(32, 0, Memory), 4, 0, 8, 1),
            (spec(32, 0, Memory), 5, 0, 7, 1),
            (spec(8192, 0, Memory), 2, 0, 512, 256),
            (spec(512, 16, Memory), 2, 0, 16, 16),
            (spec(512, 275, Memory), 2, 0, 275, 16),
            (spec(512, 2048, Disk), 2, 0, 0, 153),
            (mounted(spec(512, 4096, Memory)), 2, 0, 0, 153),
        ] {
            let division = Division { sides, taken_mb };
            division.check(&spec).unwrap();
            let shares = division.shares(&spec);
            let found_mb = if has_home_in_memory(&spec) { shares.home_mb } else { 0 };
            assert_eq!((found_mb, shares.side_mb), (home_mb, side_mb), "{} {sides}", spec.memory_mb);
            assert!(home_mb + sides * side_mb + taken_mb <= room_mb(spec.memory_mb), "{} {sides}", spec.memory_mb);
        }
    }

    #[test]
    fn a_disk_that_leaves_nothing_to_other_places_is_refused_with_what_fits() {
        let division = Division { sides: 2, taken_mb: 0 };
        let error = division.check(&spec(512, 276, Persistence::Memory)).unwrap_err().to_string();
        for part in ["a disk of 276 MiB", "512 MiB of memory", "at most 275 MiB"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let many = Division { sides: 400, ..division };
        let error = many.check(&spec(512, 0, Persistence::Memory)).unwrap_err().to_string();
        assert!(error.contains("400 other places") && error.ends_with("ask for more memory"), "{error}");
    }
}
