//! What the agent does with files itself: as the workload, in one tree, and nothing that it cannot undo by half.

mod archives;
mod asked;
mod confined;
mod detailed;
mod files;
mod modes;
mod trees;
mod watched;
mod written;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    let parts = [
        files::cases(),
        detailed::cases(),
        written::cases(),
        modes::cases(),
        trees::cases(),
        archives::cases(),
        watched::cases(),
        confined::cases(),
    ];
    parts.into_iter().flatten().collect()
}
