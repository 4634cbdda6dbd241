-- Start a bulk operation: retry, cancel, run (now), delete or move all jobs that match a filter. It is a row, which the
-- workers work off chunk by chunk (stepwell.bulk_chunk). _filter has any of states, queue, task, owner, worker,
-- metadata, argument, value, error, after, until, group and failure; {} matches all jobs that the act is for. _options
-- has from_start for retry; reason for cancel; queue, priority and run_at for move. _expected is the number of jobs
-- that somebody has confirmed; null: nobody has counted them. Only jobs that were enqueued by _as_of, and that had
-- ended by then if they have ended, are changed. So a job that is retried and fails again is not retried twice. Returns
-- the id.
create or replace function stepwell.start_bulk(
  _act text,
  _filter jsonb,
  _options jsonb default '{}',
  _expected integer default null,
  _asked_by text default null,
  _as_of timestamptz default null
) returns uuid
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _id uuid := stepwell.uuid7();
  _states stepwell.state[];
  _unknown text;
begin
  if jsonb_typeof(_filter) is distinct from 'object' or jsonb_typeof(_options) is distinct from 'object'
    or octet_length(_filter::text) + octet_length(_options::text) > 100000
  then
    raise exception using errcode = 'SW002',
      message = 'stepwell: the filter and the options of a bulk operation are JSON objects of less than 100 kB';
  end if;
  _states := stepwell.bulk_states(_act, _filter);
  select min(k.name) into _unknown
  from jsonb_object_keys(_options) as k (name)
  where k.name <> all (
    case _act when 'retry' then '{from_start}' when 'cancel' then '{reason}' when 'move' then '{queue,priority,run_at}'
      else '{}'
    end::text[]
  );
  if _unknown is not null then
    raise exception using errcode = 'SW002',
      message = format('stepwell: %s has no option %s: leave it out', _act, left(_unknown, 100));
  end if;
  if length(_options ->> 'reason') > 10000 then
    raise exception using errcode = 'SW002',
      message = 'stepwell: the reason is longer than 10,000 characters: give a shorter one';
  end if;
  -- What is wrong with the filter or the options is found now, and not by each worker that tries.
  perform stepwell.bulk_matches(_filter, _states, _now, null, 1, 1, _act = 'retry');
  perform stepwell.bulk_change(_act, _options, '{}');
  insert into stepwell.bulk (id, act, filter, options, expected, asked_by, as_of, started_at, next_at)
  values (
    _id, _act, _filter || jsonb_build_object('states', to_jsonb(_states)), _options, _expected,
    nullif(left(_asked_by, 200), ''), least(_as_of, _now), _now, clock_timestamp()
  );
  perform stepwell.notify('stepwell_bulk', _id::text);
  return _id;
end
$$;
