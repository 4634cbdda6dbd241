-- Insert the job of one tick of a schedule. The caller holds the schedule. Returns the job that has the unique key of
-- the run in its place, in which case nothing is inserted; null: the run was inserted.
create or replace function stepwell.insert_run(
  _schedule stepwell.schedule,
  _job_id uuid,
  _now timestamptz,
  _at timestamptz,
  _run_at timestamptz,
  _blocked boolean
) returns uuid
language plpgsql volatile
as $$
declare
  _holders uuid[];
begin
  if _schedule.policy #> '{admission,unique}' is not null then
    _holders := stepwell.take_keys(_now, array[_job_id], array[_schedule.policy -> 'admission']);
    if _holders is not null then
      return _holders[1];
    end if;
  end if;
  perform stepwell.insert_jobs(
    _now, array[_job_id], array[_schedule.task], array[_schedule.args::text], array[_schedule.queue],
    array[-_schedule.rank::integer], null, array[_run_at], array[_schedule.metadata::text],
    array[_schedule.max_attempts], array[case when _schedule.named then _schedule.owner end],
    array[_schedule.policy::text], array[row(null, null, _schedule.id, _at, _blocked)::stepwell.origin]
  );
  return null;
end
$$;
