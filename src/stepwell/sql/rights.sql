-- Runs after functions and views: the only list of what each kind of role may do. "stepwell grant ROLE --as KIND"
-- grants it, and docs/security.md explains it. A function that is not listed is internal, and no role may call it.
delete from stepwell.privilege;
insert into stepwell.privilege (kind, object, name)
select u.kind, k.object, n.name
from (
  values
    -- Any role that may use the schema.
    ('{everybody}'::text[], 'function', '{accepts,now,schema_version,unfold}'::text[]),
    -- Enqueue jobs, await results, emit events and send signals. The functions for workers do the same, with the
    -- worker's role.
    (
      '{producer,worker}', 'function', '{
        enqueue, enqueue_many, enqueue_unique, hold_keys, results, emit, send, open_group, add_members, seal_group
      }'
    ),
    -- Run jobs and do the upkeep.
    (
      '{worker}', 'function', '{
        register_worker, rivals, renew, unregister_worker, first_ready, ready_queues, claim, claim_jobs, read_claimed,
        report_progress, write_logs, answer_stacks, still_held, hand_back_unknown, lock_holders, hold_misfits,
        finish, fail, snooze, suspend, restart, advance, save_steps, step_saved, spawn, cancel, cancel_group,
        forget_waits, save_waits, large_value, promote, rescue, rescue_jobs, rescue_unregistered, lead, lead_and_rescue,
        admit, admit_keys, lines, return_stray_permits,
        add_stats, count_enqueued, sum_stats,
        put_schedules, rename_schedules, remove_schedules, remove_stale_schedules, due_schedules, schedule_times,
        rewind_schedules, tick,
        bulk_chunk, prune_bulks,
        make_partitions, prune, prune_events, prune_groups, prune_keys, prune_logs, prune_rows, prune_signals,
        prune_stats, prune_ticks, deliver_late, fold_failures, prune_failures, prune_audit
      }'
    ),
    -- Look.
    (
      '{viewer,operator}', 'view',
      '{jobs, failures, steps, queues, workers, schedules, ticks, controls, stats, size_limits, limits}'
    ),
    (
      '{viewer,operator}', 'function', '{
        ask_stack, find_jobs, job_logs, large_value, list_failures, list_limits, preview_bulk, read_stack,
        task_settings, why, histogram_bounds, percentiles,
        dashboard_audit, dashboard_bulks, dashboard_children, dashboard_database, dashboard_export, dashboard_failure,
        dashboard_failures, dashboard_job, dashboard_jobs, dashboard_limits,
        dashboard_names, dashboard_overview, dashboard_pulse, dashboard_queues, dashboard_schedules, dashboard_steps,
        dashboard_tasks, dashboard_views, dashboard_workers
      }'
    ),
    -- Acts of people are recorded with the rights of whoever acts for them.
    ('{producer,worker,operator}', 'function', '{record_act}'),
    ('{worker,viewer,operator}', 'function', '{gauges}'),
    ('{producer,worker,viewer,operator}', 'function', '{group_progress,group_results,job_changes}'),
    -- Change jobs, schedules and the fleet.
    (
      '{operator}', 'function', '{
        cancel, cancel_group, retry, key_holder, run_now, edit_args, delete_jobs, move_jobs, fork,
        start_bulk, continue_bulk, stop_bulk, pause, resume, stop, set_limit, set_rate,
        set_queue, set_failures, save_view, delete_view,
        put_schedules, rename_schedules, remove_schedules, pause_schedule, resume_schedule, trigger_schedule,
        backfill_schedule
      }'
    )
) as k (kinds, object, names)
cross join lateral unnest(k.kinds) as u (kind)
cross join lateral unnest(k.names) as n (name);
select stepwell.apply_rights();
