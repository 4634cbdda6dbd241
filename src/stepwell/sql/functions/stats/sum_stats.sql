-- Add up the counters of minutes that are over, so that the charts of days read few rows: of every minute over all
-- tasks and queues, of every five minutes, hour and quarter of a day also by task and queue. Writes the sums of at most
-- _limit times, and returns how many. Enqueued jobs are counted half a minute later than runs, so a minute is over when
-- they are counted.
-- If it has added up ahead of the clock, the clock was set back. Then it goes on from the last sum before, and replaces
-- that and all later ones: they may have been written before all of their counters.
create or replace function stepwell.sum_stats(_limit integer default 100) returns integer
language plpgsql volatile security definer
set timezone = 'UTC'
as $$
declare
  _origin constant timestamptz := '2000-01-01';
  _now timestamptz := stepwell.now();
  _most integer := least(greatest(coalesce(_limit, 100), 1), 10000);
  _progress stepwell.stat_progress;
  _over timestamptz;
  _minutes integer;
  _length interval;
  _at timestamptz;
  _next timestamptz;
  _written integer := 0;
begin
  select p.single, p.counted_to, p.minutes_to, p.fives_to, p.hours_to, p.quarters_to into _progress
  from stepwell.stat_progress p
  for update skip locked;
  -- A clock that tests have set to infinity never comes to the end of a minute.
  if _progress.single is null or not isfinite(_now) then
    return 0;
  end if;
  -- If nobody counts the enqueued jobs, the other counters wait for that for five minutes only.
  _over := (
    select max(c.minute)
    from generate_series(
      date_trunc('minute', _now) - interval '5 minutes', _now - interval '30 seconds', interval '1 minute'
    ) as c (minute)
    where c.minute <= _now - interval '5 minutes' or stepwell.first_uuid_at(c.minute, 0) <= _progress.counted_to
  );
  foreach _minutes in array array[1, 5, 60, 360] loop
    _length := _minutes * interval '1 minute';
    _at := case _minutes
      when 1 then _progress.minutes_to
      when 5 then _progress.fives_to
      when 60 then _progress.hours_to
      else _progress.quarters_to
    end;
    if _at > _now then
      _at := (
        select s.since from stepwell.stat_sum s
        where s.minutes = _minutes and s.since < date_bin(_length, _now, _origin)
        order by s.since desc
        limit 1
      );
    end if;
    -- Older sums are not read any more.
    _at := greatest(_at, date_bin(
      _length, _now - case when _minutes < 60 then interval '2 days' else interval '7 days' end, _origin
    ));
    while _written < _most loop
      _next := (select s.minute from stepwell.stat s where s.minute >= _at order by s.minute limit 1);
      if _next is null or date_bin(_length, _next, _origin) + _length > _over then
        _at := greatest(_at, date_bin(_length, _over, _origin));
        exit;
      end if;
      _at := date_bin(_length, _next, _origin);
      perform stepwell.write_sum(_minutes, _at);
      _at := _at + _length;
      _written := _written + 1;
    end loop;
    update stepwell.stat_progress p
    set minutes_to = case _minutes when 1 then _at else p.minutes_to end,
      fives_to = case _minutes when 5 then _at else p.fives_to end,
      hours_to = case _minutes when 60 then _at else p.hours_to end,
      quarters_to = case _minutes when 360 then _at else p.quarters_to end;
  end loop;
  return _written;
end
$$;
