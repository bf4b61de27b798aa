//! The cases, by name.

mod asymmetric;
mod calibrate;
mod communication;
mod counters;
mod doctor;
mod histories;
mod kernel;
mod page_policies;
mod pages;
mod run;
mod run_limits;
mod schedule;
mod spm;
mod topo;
mod undo;
mod wake_ups;

use crate::{Case, Seeded};

/// All cases without a seed. The boots that run them are in `lab/src/suite/boots.rs`.
pub const ALL: &[(&str, Case)] = &[
    ("asymmetric-all-fast-first-is-undone", asymmetric::all_fast_first_is_undone),
    ("asymmetric-crowds-are-excluded", asymmetric::crowds_are_excluded),
    ("asymmetric-efficiency-is-undone", asymmetric::efficiency_is_undone),
    ("asymmetric-fast-cores-are-shared", asymmetric::fast_cores_are_shared),
    ("asymmetric-follow-a-fast-core-that-goes", asymmetric::follow_a_fast_core_that_goes),
    ("asymmetric-kinds-are-measured", asymmetric::are_measured),
    ("asymmetric-kinds-are-the-device-trees", asymmetric::are_the_device_trees),
    ("asymmetric-kinds-are-not-reported", asymmetric::are_not_reported),
    ("asymmetric-phases-are-found", asymmetric::phases_are_found),
    ("asymmetric-undone-after-a-kill", asymmetric::undone_after_a_kill),
    ("asymmetric-undone-after-all-else", asymmetric::undone_after_all_else),
    ("asymmetric-utility-is-undone", asymmetric::utility_is_undone),
    ("calibrate-measures-nodes-and-siblings", calibrate::measures_nodes_and_siblings),
    ("communication-all-to-all-is-left-alone", communication::all_to_all_is_left_alone),
    ("communication-pairs-share-cores", communication::pairs_share_cores),
    ("communication-ring-lies-close", communication::a_ring_lies_close),
    ("communication-memory-pairs-share-cores", communication::pairs_with_memory_share_cores),
    ("communication-memory-ring-lies-close", communication::a_ring_with_memory_lies_close),
    ("communication-star-lies-close", communication::a_star_lies_close),
    ("counters-are-exact", counters::are_exact),
    ("counters-from-exec", counters::from_exec),
    ("counters-make-demand-vectors", counters::make_demand_vectors),
    ("counters-serve-schedulers", counters::serve_schedulers),
    ("counters-train-no-model-without-stacks", counters::train_no_model_without_stacks),
    ("counters-take-turns", counters::take_turns),
    ("counters-are-all-taken", counters::are_all_taken),
    ("counters-are-taken-midway", counters::are_taken_midway),
    ("counters-are-forbidden-midway", counters::are_forbidden_midway),
    ("counters-of-new-threads", counters::of_new_threads),
    ("counters-cannot-be-unbound", counters::cannot_be_unbound),
    ("counters-outlive-their-pu", counters::outlive_their_pu),
    ("doctor-reports-the-tier", doctor::reports_the_tier),
    ("doctor-reports-the-paranoid-level", doctor::reports_the_paranoid_level),
    ("doctor-reports-the-filter", doctor::reports_the_filter),
    ("doctor-reports-what-tiers-add", doctor::reports_what_tiers_add),
    ("doctor-remedies-work", doctor::remedies_work),
    ("run-follows-os", run::follows_os),
    ("run-follows-round-robin", run::follows_round_robin),
    ("run-follows-scatter", run::follows_scatter),
    ("run-follows-compact", run::follows_compact),
    ("run-follows-random", run::follows_random),
    ("run-follows-instruction", run::follows_instruction),
    ("run-follows-mix", run::follows_mix),
    ("run-watches-then-places", run::watches_then_places),
    ("run-places-new-threads", run::places_new_threads),
    ("run-places-forks-and-execs", run::places_forks_and_execs),
    ("run-places-static-programs", run::places_static_programs),
    ("run-a-shell-keeps-its-part", run::a_shell_keeps_its_part),
    ("run-parts-are-given-and-restored", run::parts_are_given_and_restored),
    ("run-follows-within-a-cpuset", run_limits::follows_within_a_cpuset),
    ("run-follows-a-cpuset-that-changes", run_limits::follows_a_cpuset_that_changes),
    ("run-follows-a-pu-that-goes-and-returns", run_limits::follows_a_pu_that_goes_and_returns),
    ("run-follows-a-pu-that-comes", run_limits::follows_a_pu_that_comes),
    ("run-stays-within-a-quota", run_limits::stays_within_a_quota),
    ("run-leaves-what-it-may-not-touch", run_limits::leaves_what_it_may_not_touch),
    ("kernel-confines-groups", kernel::confines_groups),
    ("kernel-freezes-groups", kernel::freezes_groups),
    ("kernel-has-sched-ext", kernel::has_sched_ext),
    ("kernel-limits-groups", kernel::limits_groups),
    ("page-policies-bring-pages-near", page_policies::bring_pages_near),
    ("page-policies-spread-pages", page_policies::spread_pages),
    ("pages-are-where-it-says", pages::are_where_it_says),
    ("pages-fill-a-node", pages::fill_a_node),
    ("pages-interleave", pages::interleave),
    ("pages-keep-huge-ones", pages::keep_huge_ones),
    ("pages-leave-policies-alone", pages::leave_policies_alone),
    ("pages-leave-shared-ones", pages::leave_shared_ones),
    ("pages-move-small-ones", pages::move_small_ones),
    ("pages-move-those-of-hugetlbfs", pages::move_those_of_hugetlbfs),
    ("pages-obey-their-owner", pages::obey_their_owner),
    ("pages-of-a-job-go-where-a-policy-orders", pages::of_a_job_go_where_a_policy_orders),
    (
        "pages-of-a-job-stay-sound-when-colocate-is-killed",
        pages::of_a_job_stay_sound_when_colocate_is_killed,
    ),
    ("pages-of-a-move-that-is-stopped", pages::of_a_move_that_is_stopped),
    ("pages-of-a-process-that-ends", pages::of_a_process_that_ends),
    ("pages-refuse-a-node-without-memory", pages::refuse_a_node_without_memory),
    ("pages-refuse-what-cannot-be", pages::refuse_what_cannot_be),
    ("pages-split-where-there-is-no-room", pages::split_where_there_is_no_room),
    ("pages-that-drift-are-noticed", pages::that_drift_are_noticed),
    ("schedule-follows-a-cpuset-that-changes", schedule::follows_a_cpuset_that_changes),
    ("schedule-follows-a-pu-that-goes-and-returns", schedule::follows_a_pu_that_goes_and_returns),
    ("spm-beside-the-kernels-balancing", spm::beside_the_kernels_balancing),
    ("spm-binds-no-more-than-pus", spm::binds_no_more_than_pus),
    ("spm-changes-no-result", spm::changes_no_result),
    ("spm-leaves-what-is-used-once", spm::leaves_what_is_used_once),
    ("spm-moves-as-fast", spm::moves_as_fast),
    ("spm-places-huge-pages", spm::places_huge_pages),
    ("spm-places-matrices", spm::places_matrices),
    ("spm-places-parts", spm::places_parts),
    ("spm-places-teams", spm::places_teams),
    ("topo-capacities-are-described", topo::capacities_are_described),
    ("topo-has-holes", topo::has_holes),
    ("topo-is-described", topo::is_described),
    ("topo-is-hwlocs", topo::is_hwlocs),
    ("topo-is-the-kernels", topo::is_the_kernels),
    ("undo-after-the-end", undo::after_the_end),
    ("undo-after-the-programs-are-killed", undo::after_the_programs_are_killed),
    ("undo-after-sigterm", undo::after_sigterm),
    ("undo-follows-a-cpuset-that-grows", undo::follows_a_cpuset_that_grows),
    ("undo-follows-a-pu-that-comes", undo::follows_a_pu_that_comes),
    ("wake-ups-are-counted", wake_ups::are_counted),
];

/// Cases with a seed, `NAME:SEED`. Without a seed, a random seed is chosen and printed.
pub const SEEDED: &[(&str, Seeded)] = &[
    ("masks-after-4-histories", histories::four),
    ("masks-after-500-histories", histories::five_hundred),
    ("schedule-undone-after-2-kills", schedule::undone_after_2_kills),
    ("schedule-undone-after-100-kills", schedule::undone_after_100_kills),
    ("undo-after-2-kills", undo::after_2_kills),
    ("undo-after-200-kills", undo::after_200_kills),
    ("undo-after-5000-kills", undo::after_5000_kills),
    ("undo-restored-2-times", undo::restored_2_times),
    ("undo-restored-50-times", undo::restored_50_times),
];
