-- Take back permits of jobs that are gone, or that wait without a right to hold them. Nothing leaves such permits
-- behind, except a person who changes the tables by hand. Returns how many.
create or replace function stepwell.return_stray_permits() returns integer
language plpgsql volatile security definer
as $$
declare
  _keys text[];
  _count integer;
begin
  with stray as (
    delete from stepwell.permit p
    where (
      select p.hold and not p.rate or j.state::text in ('ready', 'running') from stepwell.job j where j.id = p.job_id
    ) is not true
    returning p.key
  )
  select count(*), array_agg(distinct s.key) into _count, _keys from stray s;
  perform stepwell.notify_blocked(_keys);
  return _count;
end
$$;
