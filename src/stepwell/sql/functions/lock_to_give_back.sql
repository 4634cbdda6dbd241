-- Lock running jobs that are about to be given back, some of which were asked to stop, and end with that: these with their
-- parents and all that descends from them, as whoever cancels or ends a parent does, in the order of their ids. So nothing
-- may be locked before: a child that is held while its parent is waited for is what the parent's end waits for.
create or replace function stepwell.lock_to_give_back(_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _cancelling uuid[];
  _parent_ids uuid[];
begin
  select array_agg(j.id), array_agg(j.parent_id) into _cancelling, _parent_ids
  from stepwell.job j
  -- Said so, here and by those who call this, because the bare column would tempt the planner to the index on all that
  -- is being cancelled.
  where j.id = any (_ids) and j.cancelling is distinct from false;
  perform stepwell.lock_family(_cancelling, _parent_ids || _ids, true);
end
$$;
