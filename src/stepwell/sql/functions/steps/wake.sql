-- Make waiting jobs ready if a group of steps that they wait for is complete. The caller has locked the jobs.
create or replace function stepwell.wake(_job_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _places stepwell.place[];
  _keyed uuid[];
begin
  with woken as (
    update stepwell.job j
    set state = 'ready', run_at = _now, unsure = null
    -- As text: with the state itself the planner would take the index on due jobs.
    where j.id = any (_job_ids) and j.state::text = 'waiting'
      and case
        when j.awaits = 1 then not exists (
          select from stepwell.step s where s.job_id = j.id and s.pending and s.awaited is not null
        )
        else j.awaits > (select count(distinct s.awaited) from stepwell.step s where s.job_id = j.id and s.pending)
      end
    returning j.id, j.queue, j.rank, j.run_at, j.admission is not null as keyed
  )
  select array_agg(row(w.queue, w.rank, w.run_at)::stepwell.place), array_agg(w.id) filter (where w.keyed)
  into _places, _keyed
  from woken w;
  if _keyed is not null then
    perform stepwell.notify_blocked(stepwell.queue_again(_keyed));
  end if;
  perform stepwell.notify_ready(_places, null);
end
$$;
