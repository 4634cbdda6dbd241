-- Runs after the functions are made: the settings of each function.
--
-- Every function has a fixed search_path, so that no object of its caller shadows ours. The excepted functions run with
-- their caller's rights, and Postgres inlines them, which any setting would prevent.
do $$
declare
  _function regprocedure;
begin
  for _function in
    select p.oid from pg_proc p
    where p.pronamespace = 'stepwell'::regnamespace
      and p.proname <> all (
        '{
          expiry, fingerprint, json_size, lone_limit, microseconds, missing_tokens, place_text, rules_of, unfold, uuid7
        }'::text[]
      )
  loop
    execute format('alter function %s set search_path = pg_catalog, pg_temp', _function);
  end loop;
end
$$;

-- The planner settings, in groups. A function may be in several groups. A nested call inherits the settings of its
-- caller, so each function is in every group that it depends on, also where its callers have the same settings. A
-- function that reads stepwell.job must have enable_seqscan = off (tests/sql/test_plans.py).
--
-- Statistics on tables of jobs, steps and events are always stale: thousands of rows come and go between two runs of
-- ANALYZE. A plan that was made while a table was empty stays when the table is full. So the plans must not depend on
-- statistics: they are generic, and the groups leave the planner only the access paths that are right at every size.
-- Before Postgres 18 the cost of a disabled plan node triggers JIT compilation at each call (10 ms), hence jit = off.
do $$
declare
  _group record;
  _function text;
begin
  for _group in
    select g.settings, g.functions
    from (
      values
        -- generic: no table is read. Without this, each call is planned for the length of its arrays.
        (
          '{plan_cache_mode = force_generic_plan}'::text[],
          '{
            add_histograms, check_options, enqueue_unique, given_histogram, insert_jobs, percentiles, take_keys_of,
            uuids7
          }'::text[]
        ),
        -- no_jit: small tables may be scanned.
        (
          '{jit = off}',
          '{
            dashboard_database, dashboard_pulse, dashboard_views, fold_failures, list_failures, notify_ready,
            prune_audit, prune_failures, remove_stale_schedules, save_view
          }'
        ),
        -- index: rows are found by an index.
        (
          '{plan_cache_mode = force_generic_plan, jit = off, enable_seqscan = off}',
          '{
            add_members, answer_stacks, ask_stack, backfill_schedule, bulk_chunk, cancel_children, count_running,
            dashboard_bulks, delete_jobs, deliver_events, deliver_late, end_waits, fail_broken, fail_held,
            failure_group_of, forget_waits, has_live_run, job_changes, keeps_by_queue, key_holder, lock_family,
            lock_holders, lock_to_deliver, lock_to_hand_back, look_at_lines, move_jobs, note_failures,
            note_lost, open_failure_groups, open_rate, promote_one, prune_bulks, prune_events, prune_groups, prune_keys,
            prune_logs, prune_rows, prune_signals, put_schedules, queue_room, read_claimed, read_stack, release,
            remove_worker, rename_schedules, renew, rescue_jobs, rescue_unregistered, results, retry, return_permits,
            return_stray_permits, room_of, run_now, save_waits, seal_group, send, set_failures, step_saved, steps_done,
            still_held, task_settings, tick_one, use_queue_tokens
          }'
        ),
        -- walk: the function follows an index in its order, from a given place on, and stops early.
        (
          '{
            plan_cache_mode = force_generic_plan, jit = off, enable_seqscan = off, enable_bitmapscan = off,
            enable_sort = off
          }',
          '{
            admit, admit_keys, admit_lines, backlog, bulk_matches, cancel_group, claim_jobs, count_enqueued,
            count_state, count_states, dashboard_audit, dashboard_children, dashboard_export, dashboard_failure,
            dashboard_failures, dashboard_job, dashboard_jobs, dashboard_limits, dashboard_names, dashboard_overview,
            dashboard_queues, dashboard_schedules, dashboard_steps, dashboard_tasks, dashboard_workers, due_schedules,
            find_jobs, first_ready, fold_groups, gauges, group_results, job_logs, last_error, last_failure, line_up,
            lines, list_limits, oldest_ready, preview_bulk, promote, queue_names, ready_queues, register_worker,
            release_misfits, runs_to_replace, stat_rows, sum_stats, task_names, task_options, why, why_blocked,
            why_ready, why_waiting
          }'
        ),
        -- hash: arrays of any length are joined to rows by a hash; a nested loop would sort the array for each row. The
        -- only access path to the jobs is job_pkey by _ids, in its order: no other row is read, and rows are locked in
        -- the order of their ids. A hash that spilled to disk would lose that order, hence work_mem.
        (
          '{
            plan_cache_mode = force_generic_plan, jit = off, enable_seqscan = off, enable_bitmapscan = off,
            enable_nestloop = off, enable_hashjoin = on, enable_mergejoin = off, work_mem = ''256MB''
          }',
          '{
            advance, begin_cancelled_undo, begin_undo, begin_waits, count_members, delete_steps, edit_args, enter_first,
            fail, free_keys,
            hand_back_unknown, hold_misfits, keep_events, note_claimed, pass_on, queue_again, replace_jobs,
            report_progress, restart, save_steps, settle_groups, snooze, spawn, start_callbacks, suspend, take_keys,
            take_plain_keys, tick, tick_many, to_history, uncount_members, write_logs
          }'
        ),
        -- loop: few rows are looked up one by one, whichever join the caller has disabled.
        (
          '{
            plan_cache_mode = force_generic_plan, jit = off, enable_seqscan = off, enable_nestloop = on,
            enable_hashjoin = off, enable_mergejoin = off
          }',
          '{
            admit, admit_keys, cancel, deliver, end_children, fork, group_progress, look_again, mark_beside,
            take_back, take_events, waiting_for, wake
          }'
        ),
        -- hash_all: many rows are read, and added up by a hash of their names.
        (
          '{
            plan_cache_mode = force_generic_plan, jit = off, enable_seqscan = off, enable_bitmapscan = off,
            enable_sort = on, enable_hashjoin = on, enable_nestloop = on, enable_memoize = off
          }',
          '{prune_stats, stat_chart, stat_names, write_sum}'
        ),
        -- memory: it takes a job's history apart, without writing it to a temporary file.
        (
          '{work_mem = ''64MB''}',
          '{dashboard_children, dashboard_steps}'
        ),
        -- any: it looks rows up one by one, and joins arrays of any length.
        (
          '{enable_nestloop = on, enable_hashjoin = on}',
          '{admit_lines, line_up}'
        )
    ) as g (settings, functions)
  loop
    foreach _function in array _group.functions loop
      execute format('alter function stepwell.%I set %s', _function, array_to_string(_group.settings, ' set '));
    end loop;
  end loop;
end
$$;
