-- Why a blocked job does not run: for stepwell.why. No cause: its key has room for it, so that a worker could run it.
create or replace function stepwell.why_blocked(
  _job stepwell.job,
  out cause text,
  out subject text,
  out next_act text,
  out until timestamptz,
  out jobs uuid[]
)
language plpgsql stable
as $$
declare
  _most_counted constant integer := 1000;
  _now timestamptz := stepwell.now();
  _found record;
  _held integer;
  _ahead integer;
  _room double precision;
  _per double precision;
begin
  if _job.blocked_by is null and _job.schedule_id is null then
    select g.id, p.succeeded + p.failed + p.cancelled as ended, p.total, p.ended as all_ended, g.first_id, g.last_id
    into _found
    from stepwell.job_group g cross join lateral stepwell.group_progress(g.id) p
    where g.then_id = _job.id;
    -- The members have ids in this range. Jobs that were enqueued at the same time are among them.
    jobs := array(
      select m.id
      from (
        select j.id, j.group_id from stepwell.job j
        where j.id >= _found.first_id and j.id <= _found.last_id
        order by j.id
        limit _most_counted
      ) m
      where m.group_id = _found.id
      limit 3
    );
    cause := 'group';
    subject := format(
      'it is the callback of the group %s, of which %s of %s members have ended', _found.id, _found.ended, _found.total
    );
    next_act := case
      when _found.all_ended then 'wait: a worker starts it'
      else format('see the members that have not ended: stepwell jobs list --group %s', _found.id)
        || ' --state running --state ready --state scheduled --state waiting --state blocked'
    end;
    return;
  end if;

  if _job.blocked_by is null then
    jobs := array(
      select j.id from stepwell.job j where (j.state = 'blocked') = false and j.schedule_id = _job.schedule_id limit 3
    );
    cause := 'overlap';
    subject := format(
      'a run before it of the schedule %s has not ended',
      (select quote_literal(s.name) from stepwell.schedule s where s.id = _job.schedule_id)
    );
    next_act := case
      when cardinality(jobs) > 0 then format('see why that run has not ended: stepwell jobs why %s', jobs[1])
      else 'wait: it is next'
    end;
    return;
  end if;

  _ahead := (
    select count(*) from (
      select from stepwell.job j
      where j.blocked_by = _job.blocked_by and (j.rank, j.run_at, j.id) < (_job.rank, _job.run_at, _job.id)
      limit _most_counted
    ) a
  );
  select coalesce(s.most, (l.rule ->> 'most')::integer) as most, s.most is not null as most_is_set,
    coalesce(s.spacing, (r.rule ->> 'interval')::double precision) as spacing,
    coalesce(s.burst, (r.rule ->> 'burst')::integer) as burst,
    coalesce(case when s.spacing is null then (r.rule ->> 'late')::double precision else s.late end, 0) as slack,
    r.rule is not null as has_rate,
    l.rule is not null as has_limit, b.closed_until, b.used, b.used_at,
    stepwell.shell_word(_job.blocked_by) as key
  into _found
  from (select _job.blocked_by as key) k
  left join stepwell.key_setting s on s.key = k.key
  left join stepwell.bucket b on b.key = k.key
  left join lateral (
    select e.rule from json_array_elements(_job.admission -> 'limits') as e (rule)
    where e.rule ->> 'key' = k.key limit 1
  ) l on true
  left join lateral (
    select e.rule from json_array_elements(_job.admission -> 'rates') as e (rule)
    where e.rule ->> 'key' = k.key limit 1
  ) r on true;
  if _found.has_limit then
    _held := (
      select count(*) from (
        select from stepwell.permit p where p.key = _job.blocked_by and not p.rate limit _found.most + 1
      ) p
    );
    if _found.most - _held <= _ahead then
      jobs := array(
        select p.job_id from stepwell.permit p where p.key = _job.blocked_by and not p.rate
        order by p.key, p.rate, p.job_id
        limit 3
      );
      cause := 'limit';
      subject := concat_ws(
        '; ',
        format(
          'the key %s has a limit of %s%s', quote_literal(_job.blocked_by), _found.most,
          case when _found.most_is_set then ', set at run time' else '' end
        ),
        (
          select 'held by ' || string_agg(format('%s (%s)', u.id, j.state), ', ' order by u.n)
            || case when _held > 3 then format(' and %s more', _held - 3) else '' end
          from unnest(jobs) with ordinality as u (id, n) join stepwell.job j on j.id = u.id
        ),
        case
          when _ahead > 0
            then format('%s%s ahead in line', _ahead, case when _ahead = _most_counted then '+' else '' end)
        end
      );
      next_act := case
        when cardinality(jobs) > 0 then format('see why it has not ended: stepwell jobs why %s; or ', jobs[1])
        else ''
      end || format('raise the limit: stepwell limits set %s --most %s', _found.key, _found.most + 1);
      return;
    end if;
  end if;
  if _found.has_rate then
    if _found.closed_until > _now then
      cause := 'rate';
      until := _found.closed_until;
      subject := format(
        'the rate of the key %s is closed: a handler was told to slow down', quote_literal(_job.blocked_by)
      );
      next_act := format(
        'wait until it opens, or set its rate, which opens it at once: stepwell limits set %s --rate COUNT/s',
        _found.key
      );
      return;
    end if;
    _held := (
      select count(*) from (
        select from stepwell.permit p where p.key = _job.blocked_by and p.rate limit _found.burst + 1
      ) p
    );
    -- As stepwell.room_of, which needs the lock of the key, counts it.
    _room := _found.burst + _found.slack - _held + 1e-6 - stepwell.missing_tokens(
      _found.used, _found.used_at, _found.burst + _found.slack, _found.spacing, _now
    );
    if floor(_room) <= _ahead then
      cause := 'rate';
      -- Beyond this, the time would not fit.
      until := _now + least(3155760000, (_ahead + 1 - _room) * _found.spacing) * interval '1 second';
      _per := case when _found.spacing <= 1 then 1 when _found.spacing <= 60 then 60 else 3600 end;
      subject := concat_ws(
        '; ',
        format(
          'the key %s has a rate of %s per %s', quote_literal(_job.blocked_by),
          round((_per / _found.spacing)::numeric, 2)::double precision,
          case _per when 1 then 'second' when 60 then 'minute' else 'hour' end
        ),
        case
          when _ahead > 0
            then format('%s%s ahead in line', _ahead, case when _ahead = _most_counted then '+' else '' end)
        end
      );
      next_act := format('wait, or raise the rate: stepwell limits set %s --rate COUNT/s', _found.key);
      return;
    end if;
  end if;
end
$$;
