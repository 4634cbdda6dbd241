-- The counters since _from, which is on the full _sums minutes: as far as there are any, sums over so many minutes,
-- then over fewer, then the counters of the last minutes. _all: the sums over all tasks and queues, instead of by task
-- and queue; only the last minutes are by task and queue then, too. At most 50,000 rows of each kind. Sums that were
-- made ahead of the clock, which was set back since, are not read until stepwell.sum_stats has made them anew.
create or replace function stepwell.stat_rows(_from timestamptz, _sums integer, _all boolean) returns table (
  at timestamptz,
  task text,
  queue text,
  enqueued integer,
  succeeded integer,
  failed integer,
  cancelled integer,
  ended integer,
  seconds double precision,
  waits integer[],
  runs integer[]
)
language plpgsql stable
as $$
declare
  _now timestamptz := stepwell.now();
  _progress stepwell.stat_progress;
  _at timestamptz := _from;
  _minutes integer;
  _to timestamptz;
begin
  select p.single, p.counted_to, p.minutes_to, p.fives_to, p.hours_to, p.quarters_to
  into _progress from stepwell.stat_progress p;
  foreach _minutes in array array[360, 60, 5, 1] loop
    _to := case _minutes
      when 360 then _progress.quarters_to
      when 60 then _progress.hours_to
      when 5 then _progress.fives_to
      else _progress.minutes_to
    end;
    -- By task and queue, the counters of single minutes are all there is.
    continue when _minutes > _sums or _to is null or _to <= _at or _to > _now or (_minutes = 1 and not _all);
    return query
      select s.since, s.task, s.queue, s.enqueued, s.succeeded, s.failed, s.cancelled, s.ended, s.seconds, s.waits,
        s.runs
      from stepwell.stat_sum s
      where s.minutes = _minutes and s.since >= _at and s.since < _to and (s.task = '') = _all
      order by s.minutes desc, s.since desc
      limit 50000;
    _at := _to;
  end loop;
  return query
    select s.minute, s.task, s.queue, s.enqueued, s.succeeded, s.failed, s.cancelled,
      least(
        s.succeeded::bigint + s.failed + s.cancelled + s.handed_back + s.suspended + s.snoozed + s.advanced
          + s.restarted + s.undone + s.refused,
        2147483647
      )::integer,
      s.seconds, s.waits, s.runs
    from stepwell.stat s
    where s.minute >= _at
    order by s.minute desc
    limit 50000;
end
$$;
