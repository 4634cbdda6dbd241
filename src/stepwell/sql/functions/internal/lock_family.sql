-- Lock jobs, their parents and, if asked, all that descends from them, in the order of their ids: who ends children locks
-- their parents, and who ends parents their children, and neither may wait for the other. Returns what was locked, but for
-- the parents: what comes back from history a moment later is not among that, and not for the caller to touch.
create or replace function stepwell.lock_family(_ids uuid[], _parent_ids uuid[], _descendants boolean) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _below uuid[] := '{}';
  _level uuid[];
  _found uuid[];
  _locked uuid[];
begin
  loop
    _found := '{}';
    _level := case when _descendants then _ids else '{}' end;
    while cardinality(_level) > 0 loop
      -- In the order of the index on parents: so a plan that was made while the table was empty takes no other.
      _level := array(select j.id from stepwell.job j where j.parent_id = any (_level) order by j.parent_id);
      _found := _found || _level;
    end loop;
    _locked := array(
      select l.id from (
        select j.id from stepwell.job j
        where j.id = any (_ids || coalesce(_parent_ids, '{}') || _found)
        order by j.id
        for update
      ) l
    );
    -- One of them may have spawned before it was locked.
    exit when not exists (select f.id from unnest(_found) as f (id) except select b.id from unnest(_below) as b (id));
    _below := _found;
  end loop;
  -- Not a condition of the above: Postgres would apply it before it locks.
  return case
    when cardinality(_parent_ids) > 0 then
      array(select l.id from unnest(_locked) as l (id) intersect select w.id from unnest(_ids || _found) as w (id))
    else _locked
  end;
end
$$;
