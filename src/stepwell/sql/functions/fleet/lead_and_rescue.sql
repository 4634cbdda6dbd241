-- The work of a leader for each second, in one round trip: renew the leadership or take it over, then rescue the jobs
-- of dead workers. The last row says whether this worker leads, and why the rescue failed, if it did. Each other row is
-- a rescued job, as in rescue_jobs. A failed rescue does not end the leadership: that would stop all upkeep.
create or replace function stepwell.lead_and_rescue(_worker_id uuid, _lease double precision default 5)
returns table (
  leads boolean,
  why text,
  job_id uuid,
  task text,
  queue text,
  attempt integer,
  message text,
  failed boolean
)
language plpgsql volatile security definer
as $$
declare
  _leads boolean := stepwell.lead(_worker_id, _lease);
  _why text;
begin
  if _leads then
    begin
      return query
        select _leads, null::text, r.job_id, r.task, r.queue, r.attempt, r.message, r.failed
        from stepwell.rescue_jobs() r;
    exception when others then
      _why := sqlerrm;
    end;
  end if;
  return query
    select _leads, _why, null::uuid, null::text, null::text, null::integer, null::text, null::boolean;
end
$$;
