-- Why a suspended job does not run: for stepwell.why.
create or replace function stepwell.why_waiting(
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
  _run_now constant text := format('wait, or run it now: stepwell jobs run %s', _job.id);
  _found record;
  _others integer;
begin
  select s.kind, s.key, s.event, nullif(s.event_key, '') as event_key, s.error into _found
  from stepwell.step s
  where s.job_id = _job.id and s.pending and s.awaited is not null
  order by s.n, s.key
  limit 1;
  select nullif(min(s.until), 'infinity'),
    (array_agg(s.child_id order by s.n) filter (where s.child_id is not null))[:3], count(*) - 1
  into until, jobs, _others
  from stepwell.step s where s.job_id = _job.id and s.pending and s.awaited is not null;
  case
    when _found.event is not null and _found.kind = 'receive' then
      cause := 'signal';
      subject := format('it waits for the signal %s', quote_literal(_found.event));
      next_act := format('send it: stepwell jobs send %s %s', _job.id, stepwell.shell_word(_found.event));
    when _found.event is not null then
      cause := 'event';
      subject := format('it waits for the event %s', quote_literal(_found.event))
        || coalesce(format(' with key %s', quote_literal(_found.event_key)), '');
      next_act := format('emit it: stepwell emit %s', stepwell.shell_word(_found.event))
        || coalesce(format(' --key %s', stepwell.shell_word(_found.event_key)), '');
    when _found.kind = 'child' then
      cause := 'child';
      subject := format('it waits for the end of its child %s', jobs[1]);
      next_act := format('see why the child has not ended: stepwell jobs why %s', jobs[1]);
    when _found.kind = 'retry' then
      cause := 'retry';
      -- The key is that of the step, and the number of the attempt.
      subject := format(
        'its step %s failed and is tried again', quote_literal(regexp_replace(_found.key, '~\d+$', ''))
      );
      next_act := _run_now;
    when _found.kind is null then
      -- A chain or machine, before its next step.
      cause := 'delay';
      until := nullif(_job.run_at, 'infinity');
      subject := 'it is not due yet';
      next_act := _run_now;
    else
      cause := 'sleep';
      subject := 'it sleeps';
      next_act := 'wait: sleeping is part of its work';
  end case;
  if _others > 0 then
    subject := subject || format(', and for %s more', _others);
  end if;
end
$$;
