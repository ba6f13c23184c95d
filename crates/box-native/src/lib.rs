//! Boxes made of Linux namespaces and cgroups, on a plain machine with nothing installed.

pub mod cgroup;
pub mod disk;
pub mod doctor;
pub mod image;
pub mod network;
pub mod seccomp;
