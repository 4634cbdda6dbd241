-- Lock jobs, their parents and, if _descendants, all their descendants, in the order of their ids. A function that ends
-- children locks their parents, and one that ends parents locks their children; in one order they cannot deadlock.
-- Returns the locked jobs without the parents. A job that comes back from history a moment later is not among them, and
-- the caller must not change it.
-- A claim skips a locked job and does not come back to it. So parents that are ready are announced again at commit.
create or replace function stepwell.lock_family(_ids uuid[], _parent_ids uuid[], _descendants boolean) returns uuid[]
language plpgsql volatile
as $$
declare
  _below uuid[] := '{}';
  _level uuid[];
  _found uuid[];
  _locked uuid[];
  _places stepwell.place[];
begin
  loop
    _found := '{}';
    _level := case when _descendants then _ids else '{}' end;
    while cardinality(_level) > 0 loop
      -- The order of the index on parents, so that a plan made while the table was empty uses that index.
      _level := array(select j.id from stepwell.job j where j.parent_id = any (_level) order by j.parent_id);
      _found := _found || _level;
    end loop;
    select coalesce(array_agg(l.id), '{}'),
      array_agg(row(l.queue, l.rank, l.run_at)::stepwell.place)
        filter (where l.state = 'ready' and l.id = any (_parent_ids))
    into _locked, _places
    from (
      select j.id, j.state, j.queue, j.rank, j.run_at from stepwell.job j
      where j.id = any (_ids || coalesce(_parent_ids, '{}') || _found)
      order by j.id
      for update
    ) l;
    -- A job may have spawned children before it was locked.
    exit when not exists (select f.id from unnest(_found) as f (id) except select b.id from unnest(_below) as b (id));
    _below := _found;
  end loop;
  if _places is not null then
    perform stepwell.notify_ready(_places, null);
  end if;
  -- As a condition of the statement above, this would be applied before rows are locked.
  return case
    when cardinality(_parent_ids) > 0 then
      array(select l.id from unnest(_locked) as l (id) intersect select w.id from unnest(_ids || _found) as w (id))
    else _locked
  end;
end
$$;
