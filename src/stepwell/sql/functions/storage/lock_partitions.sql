-- Let only one transaction at a time create or drop partitions. It uses a table lock, which only the owner can take,
-- because any role that can connect can hold an advisory lock. The lock blocks no reader or writer. It waits for the
-- caller's lock_timeout, and then names the holder.
create or replace function stepwell.lock_partitions() returns void
language plpgsql volatile
as $$
begin
  lock table only stepwell.history in share update exclusive mode;
exception when lock_not_available then
  raise exception using errcode = 'lock_not_available',
    message = format(
      'stepwell: another session is making or dropping partitions, or analyses stepwell.history: %s',
      coalesce(
        (
          select string_agg(
            format(
              'process %s (role %s, application %s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), '-')
            ),
            ', ' order by a.pid
          )
          from pg_locks l join pg_stat_activity a on a.pid = l.pid
          where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
            and l.database = (select d.oid from pg_database d where d.datname = current_database())
            and l.relation = 'stepwell.history'::regclass
            and l.mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
        ),
        'it has just ended'
      )
    ),
    hint = 'The next round of upkeep tries again. A session that idles in such a transaction can be ended by '
      'pg_terminate_backend.';
end
$$;
