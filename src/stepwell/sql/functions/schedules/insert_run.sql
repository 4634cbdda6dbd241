-- Insert the job of one tick of a schedule. The caller holds the schedule.
create or replace function stepwell.insert_run(
  _schedule stepwell.schedule,
  _job_id uuid,
  _now timestamptz,
  _at timestamptz,
  _run_at timestamptz,
  _blocked boolean
) returns void
language plpgsql volatile
as $$
begin
  perform stepwell.insert_jobs(
    _now, array[_job_id], array[_schedule.task], array[_schedule.args::text], array[_schedule.queue],
    array[-_schedule.rank::integer], null, array[_run_at], array[_schedule.metadata::text],
    array[_schedule.max_attempts], array[case when _schedule.named then _schedule.owner end],
    array[_schedule.policy::text], array[row(null, null, _schedule.id, _at, _blocked)::stepwell.origin]
  );
end
$$;
