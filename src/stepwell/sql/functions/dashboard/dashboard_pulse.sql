-- Whether something may have changed: a text that is different after a change. Also the time, and whether the database
-- takes no writes.
create or replace function stepwell.dashboard_pulse() returns json
language plpgsql stable security definer
as $$
begin
  return json_build_object(
    'now', stepwell.now(),
    'read_only', pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on',
    'changes', case
      when pg_is_in_recovery() then pg_last_wal_replay_lsn()::text
      else (
        select sum(t.n_tup_ins + t.n_tup_upd + t.n_tup_del)::text
        from pg_stat_user_tables t
        where t.schemaname = 'stepwell'
          and t.relname in (
            'job', 'step', 'worker', 'control', 'schedule', 'key_setting', 'queue_setting', 'bulk', 'saved_view'
          )
      )
    end
  );
end
$$;
