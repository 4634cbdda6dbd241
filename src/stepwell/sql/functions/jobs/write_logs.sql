-- Add lines to the logs of jobs, in the order of the arrays. _levels are those of Python's logging. Lines of jobs that
-- do not exist are left out. _cut[k] lines of the job _cut_ids[k], which came before these, were left out by the
-- worker: they are only numbered. Of each job about the newest 1,000 lines or 256 kB are kept. Returns how many lines
-- were added.
create or replace function stepwell.write_logs(
  _ids uuid[],
  _attempts integer[],
  _ats timestamptz[],
  _levels integer[],
  _loggers text[],
  _messages text[],
  _cut_ids uuid[] default '{}',
  _cut integer[] default '{}'
) returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _most_lines constant integer := 1000;
  _most_bytes constant integer := 262144;
  _new uuid[];
  _heads uuid[];
  _long uuid[];
  _added integer;
begin
  _new := array(
    select distinct u.id from unnest(_ids) as u (id) where u.id is not null
    except
    select h.job_id from stepwell.run_log_head h where h.job_id = any (_ids)
  );
  if cardinality(_new) > 0 then
    insert into stepwell.run_log_head (job_id, look_at)
    select f.id, _now + interval '10 minutes'
    from (
      select j.id from stepwell.job j where j.id = any (_new)
      union
      -- A run may have ended before its last lines are written.
      select h.id from stepwell.history h where h.id = any (_new) and h.expires_at > _now
    ) f
    order by f.id
    on conflict on constraint run_log_head_pkey do nothing;
  end if;
  _heads := array(
    select l.job_id
    from (
      select h.job_id from stepwell.run_log_head h where h.job_id = any (_ids) order by h.job_id for no key update
    ) l
  );
  with line as materialized (
    select u.id, u.attempt, u.at, u.level, left(u.logger, 200) as logger, left(u.message, 4100) as message,
      h.last_line::bigint + coalesce(c.cut, 0) + row_number() over (partition by u.id order by u.n) as line
    from unnest(_ids, _attempts, _ats, _levels, _loggers, _messages) with ordinality
      as u (id, attempt, at, level, logger, message, n)
    join stepwell.run_log_head h on h.job_id = u.id
    left join (
      select c.id, least(sum(greatest(c.cut, 0)), 1000000000)::integer as cut
      from unnest(_cut_ids, _cut) as c (id, cut)
      group by c.id
    ) c on c.id = u.id
    where h.job_id = any (_heads)
  ), added as (
    insert into stepwell.run_log (job_id, line, attempt, at, level, logger, message)
    -- Line numbers begin again after two billion lines of one job, should anybody get there.
    select l.id, l.line::integer, coalesce(l.attempt, 0), coalesce(l.at, _now),
      least(greatest(coalesce(l.level, 0), 0), 32767), coalesce(l.logger, ''), coalesce(l.message, '')
    from line l
    where l.line < 2147483647
  ), counted as (
    update stepwell.run_log_head h
    set last_line = least(m.last_line, 2147483647)::integer, lines = h.lines + m.lines,
      bytes = least(h.bytes::bigint + coalesce(m.bytes, 0), 2147483647)::integer
    from (
      select l.id, max(l.line) as last_line, count(*)::integer as lines,
        sum(octet_length(l.message) + octet_length(l.logger) + 50) as bytes
      from line l
      group by l.id
    ) m
    where h.job_id = any (_heads) and h.job_id = m.id
    returning h.job_id, h.lines, h.bytes, m.lines as added
  )
  select coalesce(sum(c.added), 0),
    -- Not with every line: to find out which lines are too many, all lines of the job are read.
    array_agg(c.job_id) filter (where c.lines > _most_lines + 200 or c.bytes > _most_bytes + 65536)
  into _added, _long
  from counted c;
  if _long is not null then
    with old as materialized (
      select o.job_id, max(o.line) as line, count(*)::integer as lines, sum(o.size)::integer as bytes
      from (
        select r.job_id, r.line, octet_length(r.message) + octet_length(r.logger) + 50 as size,
          row_number() over newest as n,
          sum(octet_length(r.message) + octet_length(r.logger) + 50) over newest as so_far
        from stepwell.run_log r
        where r.job_id = any (_long)
        window newest as (partition by r.job_id order by r.line desc)
      ) o
      where o.n > _most_lines or o.so_far > _most_bytes
      group by o.job_id
    ), gone as (
      delete from stepwell.run_log r using old o
      where r.job_id = any (_long) and r.job_id = o.job_id and r.line <= o.line
    )
    update stepwell.run_log_head h
    set lines = greatest(h.lines - o.lines, 0), bytes = greatest(h.bytes - o.bytes, 0)
    from old o
    where h.job_id = any (_long) and h.job_id = o.job_id;
  end if;
  return _added;
end
$$;
