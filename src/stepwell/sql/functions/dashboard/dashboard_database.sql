-- The health of the database: the sizes and dead rows of the tables, partitions, the oldest snapshots and who holds
-- them, connections, replication, and the queue of notifications.
create or replace function stepwell.dashboard_database() returns json
language plpgsql stable security definer
as $$
declare
  _wal pg_lsn := case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end;
begin
  return json_build_object(
    'version', current_setting('server_version'), 'schema', stepwell.schema_version(), 'name', current_database(),
    'size', pg_database_size(current_database()), 'in_recovery', pg_is_in_recovery(),
    'started_at', pg_postmaster_start_time(), 'notify_usage', pg_notification_queue_usage(),
    'max_connections', current_setting('max_connections')::integer,
    'xid_age', (select age(d.datfrozenxid) from pg_database d where d.datname = current_database()),
    'xid_most', current_setting('autovacuum_freeze_max_age')::integer,
    'autovacuum', current_setting('autovacuum') = 'on',
    'tables', coalesce(
      (
        select json_agg(
          json_build_object(
            'name', t.relname, 'live', t.n_live_tup, 'dead', t.n_dead_tup,
            'bytes', pg_table_size(t.relid), 'index_bytes', pg_indexes_size(t.relid),
            'vacuumed_at', greatest(t.last_vacuum, t.last_autovacuum),
            'analyzed_at', greatest(t.last_analyze, t.last_autoanalyze)
          )
          order by t.relname
        )
        from pg_stat_user_tables t join pg_class c on c.oid = t.relid
        where t.schemaname = 'stepwell' and not c.relispartition
      ),
      '[]'
    ),
    'partitions', coalesce(
      (
        select json_agg(
          json_build_object(
            'table', p.parent, 'name', p.relname, 'bytes', pg_total_relation_size(p.oid),
            'rows', greatest(p.reltuples, 0)::bigint, 'bounds', p.bounds
          )
          order by p.parent, p.relname
        )
        from (
          select r.relname as parent, c.relname, c.oid, c.reltuples, pg_get_expr(c.relpartbound, c.oid) as bounds
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
          join pg_class r on r.oid = i.inhparent
          where r.relnamespace = 'stepwell'::regnamespace and r.relkind = 'p'
          order by r.relname, c.relname
          limit 1000
        ) p
      ),
      '[]'
    ),
    'snapshots', coalesce(
      (
        select json_agg(
          json_build_object(
            'kind', h.kind, 'pid', h.pid, 'user', h.usename, 'name', h.name, 'state', h.state, 'since', h.since,
            'xids', h.xids
          )
          order by h.since nulls first, h.xids desc
        )
        from (
          select h.* from (
            select 'session' as kind, a.pid, a.usename::text, a.application_name as name, a.state,
              coalesce(a.xact_start, a.backend_start) as since, age(a.backend_xmin) as xids
            from pg_stat_activity a
            where a.backend_xmin is not null and a.pid <> pg_backend_pid()
              and (a.datname = current_database() or a.backend_type = 'walsender')
            union all
            select 'prepared transaction', null, p.owner::text, p.gid, 'prepared', p.prepared, age(p.transaction)
            from pg_prepared_xacts p where p.database = current_database()
            union all
            select 'replication slot', s.active_pid, null, s.slot_name::text,
              case when s.active then 'active' else 'inactive' end, null, age(s.xmin)
            from pg_replication_slots s where s.xmin is not null
          ) h
          order by h.since nulls first, h.xids desc
          limit 10
        ) h
      ),
      '[]'
    ),
    'connections', coalesce(
      (
        select json_agg(
          json_build_object('name', c.name, 'user', c.usename, 'state', c.state, 'count', c.count)
          order by c.count desc, c.name, c.state
        )
        from (
          select coalesce(nullif(a.application_name, ''), '(no name)') as name, a.usename::text,
            coalesce(a.state, 'hidden') as state, count(*) as count
          from pg_stat_activity a
          where a.datname = current_database()
          group by 1, 2, 3
          order by 4 desc
          limit 50
        ) c
      ),
      '[]'
    ),
    'replicas', coalesce(
      (
        select json_agg(
          json_build_object(
            'name', r.application_name, 'address', host(r.client_addr), 'state', r.state, 'sync', r.sync_state,
            'lag', extract(epoch from r.replay_lag),
            'behind', greatest(pg_wal_lsn_diff(_wal, r.replay_lsn), 0)::bigint
          )
          order by r.application_name, r.pid
        )
        from (select r.* from pg_stat_replication r order by r.pid limit 20) r
      ),
      '[]'
    ),
    'slots', coalesce(
      (
        select json_agg(
          json_build_object(
            'name', s.slot_name, 'type', s.slot_type, 'active', s.active, 'wal_status', s.wal_status,
            'held', greatest(pg_wal_lsn_diff(_wal, s.restart_lsn), 0)::bigint
          )
          order by s.slot_name
        )
        from (select s.* from pg_replication_slots s order by s.slot_name limit 50) s
      ),
      '[]'
    ),
    'receiver', case
      when pg_is_in_recovery() then (
        select json_build_object(
          'status', (select r.status from pg_stat_wal_receiver r),
          'replayed_at', pg_last_xact_replay_timestamp(),
          'behind', greatest(pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), 0)::bigint
        )
      )
    end,
    'leader', (
      select json_build_object('worker_id', l.worker_id, 'since', l.since, 'alive', l.lease_until > stepwell.now())
      from stepwell.leader l
    )
  );
end
$$;
