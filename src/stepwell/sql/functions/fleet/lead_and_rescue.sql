-- Lead the fleet, if nobody else does, and as its leader rescue the jobs of dead workers: what a leader does each second, in
-- one round trip. The last row says whether this worker leads, and why the rescue failed, if it did; each other row is a
-- rescued job, as rescue_jobs returns it. To lead does not depend on the rescue: one that fails must not stop all upkeep.
create or replace function stepwell.lead_and_rescue(_worker_id uuid, _lease double precision default 5)
returns table (
  leads boolean,
  why text,
  job_id uuid,
  task text,
  message text,
  failed boolean
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _leads boolean := stepwell.lead(_worker_id, _lease);
  _why text;
begin
  if _leads then
    begin
      return query select _leads, null::text, r.job_id, r.task, r.message, r.failed from stepwell.rescue_jobs() r;
    exception when others then
      _why := sqlerrm;
    end;
  end if;
  return query select _leads, _why, null::uuid, null::text, null::text, null::boolean;
end
$$;
